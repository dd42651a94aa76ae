"""Why a machine that should run is down, as far as the provider says: reclaimed, frozen, or its container ended."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from server.clock import now
from server.novita.models import StatusError

SPOT_RECLAIMED = "SPOT_RECLAIMED"
FROZEN = "FROZEN"
CONTAINER_EXITED = "CONTAINER_EXITED"
FREEZING = "freezing"  # the provider's word while it stops a machine because the account is in arrears
EXITED_STATE = "containerExited"
# The provider's wording is not documented: "container exited with code 137", "exit status: 1", "exitCode=0".
EXIT_CODE = re.compile(r"\bexit(?:ed)?\W*(?:with\W+)?(?:code|status)\W{0,3}(-?\d{1,9})", re.IGNORECASE)


class EndedMachine(Protocol):
    """The fields of a machine that matter here."""

    @property
    def status(self) -> str: ...

    @property
    def status_error(self) -> StatusError | None: ...

    @property
    def spot_status(self) -> str | None: ...

    @property
    def spot_reclaim_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class End:
    """`exit_code` and `exit_message` are of a container that ended by itself."""

    reason: str
    message: str
    exit_code: int | None = None
    exit_message: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        return {"exit_code": self.exit_code, "exit_message": self.exit_message}


def find_end(remote: EndedMachine, *, last_seen: str | None) -> End | None:
    """None if the provider does not say why. `last_seen` is its word at the look before this one."""
    if was_reclaimed(remote):
        return End(SPOT_RECLAIMED, "The provider reclaimed the spot instance.")
    if FREEZING in (remote.status, last_seen):
        return End(FROZEN, "The provider stopped it because the account is in arrears.")
    error = remote.status_error
    if error is None:
        return None
    found = EXIT_CODE.search(error.message)
    if error.state != EXITED_STATE and found is None:
        return None
    message = error.message or "The container ended."
    return End(CONTAINER_EXITED, message, int(found[1]) if found else None, message)


def was_reclaimed(remote: EndedMachine) -> bool:
    """The reclaim time alone is not enough: the machine may have been stopped between the notice and that time."""
    if remote.spot_reclaim_at is None:
        return False
    return remote.spot_status in ("reclaiming", "terminated") or remote.spot_reclaim_at <= now()
