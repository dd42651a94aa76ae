"""Which instances the provider bills for now, by our status and the provider's word for its machine."""

from server.enums import InstanceStatus

S = InstanceStatus

# The provider's words for machines that cost money, and for those that cost nothing. An unknown word is billed in the
# burn rate (rather too much than unseen) and changes nothing in the ledger.
BILLED_WORDS = frozenset(
    {"pulling", "starting", "running", "toStop", "stopping", "toRestart", "restarting"}
    | {"toReset", "resetting", "migrating", "freezing"}
)
UNBILLED_WORDS = frozenset({"pending", "toCreate", "creating", "toStart", "exited", "toRemove", "removing", "removed"})
# Whatever the provider said last. A stopped machine costs its disk; the unit of that price is not known.
UNBILLED_STATUSES = frozenset({S.EXITED, S.DELETED})
# There is a machine, and the provider has not been asked about it yet.
BILLED_UNSEEN = frozenset({S.STARTING, S.RUNNING, S.HEALTH_CHECKING, S.READY, S.STOPPING, S.RESTARTING, S.MIGRATING})

MONTHLY = "monthly"  # the billing mode of machines that are paid for in advance


def is_billed(status: str | None, novita_status: str | None) -> bool:
    """`status` is None for a machine without an instance.

    `server.instances.queries.fleet.IS_BILLED` is the same in SQL; a test compares them.
    """
    if status in UNBILLED_STATUSES:
        return False
    if novita_status is None:
        return status in BILLED_UNSEEN
    return novita_status not in UNBILLED_WORDS


def is_paid(status: str, novita_status: str | None, *, is_hourly: bool) -> bool | None:
    """Whether the provider bills for its time, by what it has shown; None: it has shown nothing that tells."""
    if not is_hourly or status in UNBILLED_STATUSES or novita_status in UNBILLED_WORDS:
        return False
    return True if novita_status in BILLED_WORDS else None
