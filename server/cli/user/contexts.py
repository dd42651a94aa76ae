"""`pilotlight context`, `pilotlight token list` and `revoke`, `pilotlight completion`."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from server.cli.user.exits import REFUSED, USAGE, connected, fail
from server.cli.user.output import Column, age, show
from server.cli.user.reads import Output

COMPLETE = "_PILOTLIGHT_COMPLETE"


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A stored server."""

    name: str
    url: str
    is_current: bool


CONTEXT: Sequence[Column] = [
    ("CURRENT", lambda each: "*" if each.is_current else ""),
    ("NAME", lambda each: each.name),
    ("URL", lambda each: each.url),
]
contexts = typer.Typer(no_args_is_help=True, help="Servers that the commands talk to.")


@contexts.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Name of the context.")],
    url: Annotated[str, typer.Argument(help="Address of the server.")],
    token: Annotated[str | None, typer.Option(help="Token; default: read from standard input.")] = None,
) -> None:
    """Store a server and its token, and use it from now on."""
    from pilotlight_client import NotConfigured
    from pilotlight_client.connection import graphql_url

    try:
        graphql_url(url)
    except NotConfigured as problem:
        raise fail(str(problem), USAGE) from None
    if token is None and sys.stdin.isatty():
        token = typer.prompt("Token", hide_input=True)
    secret = token or sys.stdin.readline().strip()
    if not secret:
        raise fail("there is no token", USAGE)
    stored = _read()
    stored["contexts"][name] = {"url": url, "token": secret}
    stored["current"] = name
    _write(stored)


@contexts.command("use")
def use(name: Annotated[str, typer.Argument(help="Name of a context.")]) -> None:
    """Talk to this server from now on."""
    stored = _known(name)
    stored["current"] = name
    _write(stored)


@contexts.command("rm")
def remove(name: Annotated[str, typer.Argument(help="Name of a context.")]) -> None:
    """Forget a server and its token."""
    stored = _known(name)
    del stored["contexts"][name]
    if stored["current"] == name:
        stored["current"] = None
    _write(stored)


@contexts.command("ls")
def list_contexts(output: Output = None) -> None:
    """List the stored servers, without their tokens."""
    stored = _read()
    found = [
        StoredContext(name, each["url"], name == stored["current"]) for name, each in sorted(stored["contexts"].items())
    ]
    show(found, CONTEXT, [], output)


def list_tokens(output: Output = None) -> None:
    """List the project's tokens; needs ADMIN."""
    with connected() as client:
        show(
            client.tokens(),
            [
                ("NAME", lambda each: each.name),
                ("ROLE", lambda each: str(each.role)),
                ("HINT", lambda each: each.hint),
                ("LAST USED", lambda each: f"{age(each.last_used_at)} ago" if each.last_used_at else "never"),
                ("EXPIRES", lambda each: each.expires_at.isoformat() if each.expires_at else "never"),
                ("REVOKED", lambda each: each.revoked_at.isoformat() if each.revoked_at else ""),
            ],
            [("ID", lambda each: each.id)],
            output,
        )


def revoke_token(
    token: Annotated[str, typer.Argument(help="Id of the token, or its name if only one has it.")],
) -> None:
    """Revoke a token; its connections end. Needs ADMIN."""
    with connected() as client:
        found = [each for each in client.tokens() if token in (each.id, each.name) and each.revoked_at is None]
        if len(found) != 1:
            raise fail(f"{len(found)} tokens match {token!r}", REFUSED)
        client.revoke_token(found[0].id)
        typer.echo(f"revoked {found[0].name}")


def is_completing() -> bool:
    """Whether a shell asks for completions, as the script of `pilotlight completion` does."""
    return COMPLETE in os.environ


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell: `pilotlight completion bash >> ~/.bashrc`."""
    from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

    if shell not in ("bash", "zsh", "fish"):
        raise fail(f"there is no completion for {shell!r}; bash, zsh and fish have one", USAGE)
    typer.echo(get_completion_script(prog_name="pilotlight", complete_var=COMPLETE, shell=shell))


def _read() -> dict[str, Any]:
    from pilotlight_client.connection import read_contexts

    return read_contexts()


def _known(name: str) -> dict[str, Any]:
    stored = _read()
    if name not in stored["contexts"]:
        raise fail(f"there is no context {name!r}", REFUSED)
    return stored


def _write(stored: dict[str, Any]) -> None:
    from pilotlight_client.connection import config_file

    from server.cli.ready_file import write_whole

    write_whole(config_file(), json.dumps(stored, indent=2))
