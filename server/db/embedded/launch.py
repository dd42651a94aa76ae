"""Launches PostgreSQL: drops root, ties the process to its owner's life, then calls exec.

A script on the standard library alone, run by path with `-I -S`: after dropping root it may be unable to read the
virtualenv, and it delays every start.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from struct import pack, unpack

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAPABILITIES_V3 = 0x20080522
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAP_SETPCAP = 8


def main() -> None:
    owner, account, tie, data, *command = sys.argv[1:]
    if account != "-":
        uid, gid = account.split(":")
        drop_root(int(uid), int(gid), program=Path(command[0]), data=Path(data))
    if tie == "watch":
        watch(command)
    if tie == "kernel":
        tie_to_owner(int(owner))
    os.execv(command[0], command)


def drop_root(uid: int, gid: int, *, program: Path, data: Path) -> None:
    """Switch to another user for good, keeping the least capability with which it can reach its files.

    Those may be in a folder that only root can enter (a clone in /root, a `mktemp -d`). Its permissions must not be
    changed, so the process keeps an ambient capability, which outlives exec.
    """
    if sys.platform == "linux":
        prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    reachable = can_reach(program, data)
    if sys.platform == "linux":
        capability = None if reachable else needed_capability(program, data)
        if capability is None:
            set_capabilities(effective=0, permitted=0, inheritable=0)
        else:
            set_capabilities(effective=1 << capability, permitted=1 << capability, inheritable=1 << capability)
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)
            reachable = True
    if not reachable:
        sys.exit(f"error: user {uid}, who runs PostgreSQL because root may not, can't reach {program} or {data}")


def can_reach(program: Path, data: Path) -> bool:
    """Checked with access(2), as PostgreSQL's own programs check each other."""
    resource = program.parent.parent / "share/postgresql/postgres.bki"
    may_run = os.access(program, os.R_OK | os.X_OK) and os.access(resource, os.R_OK)
    return may_run and os.access(data, os.R_OK | os.W_OK | os.X_OK)


def needed_capability(program: Path, data: Path) -> int | None:
    """The smallest capability with which the files can be reached, or None."""
    permitted = permitted_capabilities()
    if not permitted >> CAP_SETPCAP & 1:
        return None
    # access(2) ignores capabilities unless SECBIT_NO_SETUID_FIXUP is set.
    set_capabilities(effective=1 << CAP_SETPCAP, permitted=permitted, inheritable=0)
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    # Reading is the smaller one and is tried first; root in Docker has only the second.
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        if permitted >> capability & 1:
            set_capabilities(effective=1 << capability, permitted=permitted, inheritable=0)
            if can_reach(program, data):
                return capability
    return None


def tie_to_owner(owner: int) -> None:
    """Request a fast shutdown when the owner ends for any reason.

    Set last, because a change of user clears it. An owner that has ended before sends nothing, hence the check.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != owner:
        sys.exit("error: the process that started PostgreSQL has ended")


def watch(command: list[str]) -> None:
    """Without PR_SET_PDEATHSIG: stay as parent process, with the owner at the other end of stdin."""
    import subprocess  # noqa: PLC0415 - not needed on Linux, where it would slow down the start
    import threading  # noqa: PLC0415

    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, lambda number, _: child.send_signal(number))

    def stop_when_alone() -> None:
        os.read(0, 1)
        child.send_signal(signal.SIGINT)

    threading.Thread(target=stop_when_alone, daemon=True).start()
    sys.exit(child.wait())


def permitted_capabilities() -> int:
    sets = ctypes.create_string_buffer(24)  # effective, permitted, inheritable: the low halves, then the high ones
    call("capget", ctypes.create_string_buffer(pack("=Ii", CAPABILITIES_V3, 0)), sets)
    _, low, _, _, high, _ = unpack("=6I", sets.raw)
    return low | high << 32


def set_capabilities(*, effective: int, permitted: int, inheritable: int) -> None:
    low = (number & 0xFFFFFFFF for number in (effective, permitted, inheritable))
    high = (number >> 32 for number in (effective, permitted, inheritable))
    header = ctypes.create_string_buffer(pack("=Ii", CAPABILITIES_V3, 0))
    call("capset", header, ctypes.create_string_buffer(pack("=6I", *low, *high)))


def prctl(option: int, first: int, second: int = 0) -> None:
    call("prctl", option, *(ctypes.c_ulong(argument) for argument in (first, second, 0, 0)))


def call(name: str, *arguments: object) -> None:
    if ctypes.CDLL(None, use_errno=True)[name](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"error: {error}")
