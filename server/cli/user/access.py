"""`pilotlight ssh` and `pilotlight cp`: the system's ssh and scp, with the access that the server names now.

The password goes through SSH_ASKPASS: ssh runs this very command again, which prints it from its environment. So it is
on no command line and in no file. The host key is accepted for the length of one run: each machine is new.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from server.cli.user.exits import REFUSED, USAGE, connected, fail
from server.cli.user.reads import Name

if TYPE_CHECKING:
    from pilotlight_client.models import SshAccess

ASKPASS = "PILOTLIGHT_ASKPASS"


def answer_askpass() -> bool:
    """Whether ssh has called this command for a password; then it was printed."""
    password = os.environ.get(ASKPASS)
    if password is None or len(sys.argv) != 2:
        return False
    sys.stdout.write(f"{password}\n")
    return True


def ssh(
    name: Name,
    command: Annotated[list[str] | None, typer.Argument(help="Command to run there, with its options.")] = None,
) -> None:
    """Log in to an instance, or run a command there."""
    if command and command[0] == "--":
        command = command[1:]
    with connected() as client:
        access = client.ssh_access(name)
    raise typer.Exit(run_ssh(access, command or []))


def cp(
    source: Annotated[str, typer.Argument(help="File or folder; NAME:PATH on an instance.")],
    target: Annotated[str, typer.Argument(help="The same.")],
) -> None:
    """Copy files to or from an instance."""
    remote = [part for part in (source, target) if _is_remote(part)]
    if len(remote) != 1:
        raise fail("exactly one of the two has to be on an instance: NAME:PATH", USAGE)
    name = remote[0].partition(":")[0]
    with connected() as client:
        access = client.ssh_access(name)
    raise typer.Exit(run_scp(access, source, target))


def run_ssh(access: "SshAccess", command: list[str]) -> int:
    """The exit code of ssh."""
    destination, port = _address(access)
    with tempfile.TemporaryDirectory(prefix="pilotlight-ssh-") as folder:
        call = [_program("ssh"), *_options(folder), "-p", port, destination]
        return subprocess.run([*call, *([shlex.join(command)] if command else [])], env=_environment(access)).returncode


def run_scp(access: "SshAccess", source: str, target: str) -> int:
    """The exit code of scp."""
    destination, port = _address(access)
    parts = [_part(each, destination) for each in (source, target)]
    with tempfile.TemporaryDirectory(prefix="pilotlight-ssh-") as folder:
        call = [_program("scp"), *_options(folder), "-r", "-P", port, *parts]
        return subprocess.run(call, env=_environment(access)).returncode


def _address(access: "SshAccess") -> tuple[str, str]:
    """user@host and the port, out of the provider's command."""
    words = shlex.split(access.command)
    destination = next((word for word in words[1:] if "@" in word), None)
    if destination is None or destination.startswith("-"):
        raise fail(f"the provider's command is not understood: {access.command}", REFUSED)
    return destination, words[words.index("-p") + 1] if "-p" in words else "22"


def _is_remote(part: str) -> bool:
    """As for scp, a path with a slash before the colon is a file here."""
    return ":" in part and "/" not in part.partition(":")[0]


def _part(given: str, destination: str) -> str:
    """For scp, which takes a name that begins with a dash for an option."""
    if _is_remote(given):
        return f"{destination}:{given.partition(':')[2]}"
    return f"./{given}" if given.startswith("-") else given


def _options(folder: str) -> list[str]:
    known_hosts = Path(folder) / "known_hosts"
    return ["-o", f"UserKnownHostsFile={known_hosts}", "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR"]


def _environment(access: "SshAccess") -> dict[str, str]:
    if access.password is None:
        return dict(os.environ)
    asking = {"SSH_ASKPASS": str(Path(sys.argv[0]).resolve()), "SSH_ASKPASS_REQUIRE": "force", ASKPASS: access.password}
    return {**os.environ, **asking}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise fail(f"{name} is not installed", USAGE)
    return found
