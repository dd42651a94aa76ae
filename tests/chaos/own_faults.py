"""Which failed operations of a chaos run are Pilotlight's own fault.

What the provider says about a machine, and an outage that lasts longer than PROVIDER_MAX_WAIT, may fail an operation.
Nothing else may: no lost worker, no outage of the database, no refused key of one process, no machine called gone that
was not removed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

# What the simulator does to machines on request, or refuses because of it.
OF_THE_PROVIDER = frozenset(
    {
        "IMAGE_PULL_FAILED",
        "CONTAINER_EXITED",
        "EXITED_EARLY",
        "START_FAILED",
        "INVALID_STATE_CHANGE",
        "SPOT_RECLAIMED",
        # A replacement that was too late, or whose machine had ended otherwise.
        "RECLAIMED_FIRST",
        "REPLACEMENT_NOT_NEEDED",
    }
)
# Of a provider that is away, or does not answer clearly; only after PROVIDER_MAX_WAIT.
OF_AN_OUTAGE = frozenset({"NETWORK_ERROR", "RATE_LIMITED", "CIRCUIT_OPEN", "PROVIDER_ERROR", "PROVIDER_BUSY"})
CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed operation, and how long it was open."""

    id: str
    kind: str
    code: str
    message: str
    seconds: float


# But for those of a machine that the simulator has lost on request.
FAILURES = """
    SELECT id, kind, error_code, error_message, extract(epoch FROM finished_at - created_at)::float8 AS seconds
    FROM operation WHERE status = 'FAILED' AND NOT (error_code IN ('GONE_AT_PROVIDER', 'HEALTH_CHECK_FAILED')
        AND EXISTS (SELECT FROM machine
                    WHERE machine.instance_id = operation.instance_id AND novita_id = ANY($1::text[])))
"""


def own_faults(failures: Iterable[Failure], *, cancelled: Collection[str], provider_max_wait: float) -> list[str]:
    """One sentence for each. `cancelled` are the operations that a caller asked to cancel."""
    return [
        f"{failure.id} ({failure.kind}) failed after {failure.seconds:.1f} s: {failure.code}, {failure.message}"
        for failure in failures
        if not _is_excused(failure, cancelled, provider_max_wait)
    ]


def _is_excused(failure: Failure, cancelled: Collection[str], provider_max_wait: float) -> bool:
    if failure.kind == "DELETE":
        return False  # a delete waits for as long as the machine may exist
    if failure.code == CANCELLED:
        return failure.id in cancelled
    if failure.code in OF_AN_OUTAGE:
        return failure.seconds >= provider_max_wait
    return failure.code in OF_THE_PROVIDER
