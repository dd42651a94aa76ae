"""Public ids: a prefix for the type and the row's id."""

from uuid import UUID

import strawberry

from server.clock import format_id as format_id
from server.db.seals import JOB_PREFIX, Seals
from server.errors import NotFound

INSTANCE = "inst"
OPERATION = "op"
EVENT = "evt"
TOKEN = "tok"
JOB = JOB_PREFIX
DELIVERY = "dlv"
WEBHOOK = "hook"
PROJECT = "prj"
BUDGET = "bud"
QUOTA = "quo"
ALERT = "alr"
TEMPLATE = "tpl"
REGISTRY_AUTH = "auth"
PRODUCT = "prod"
NETWORK = "net"
PREWARM = "pre"
PROVIDER_JOB = "pjob"
VOLUME = "vol"

UNUSED_ID = UUID(int=0)  # no row has this id

NOUNS = {
    INSTANCE: "instance",
    OPERATION: "operation",
    EVENT: "event",
    TOKEN: "token",
    JOB: "job",
    DELIVERY: "delivery",
    WEBHOOK: "webhook",
    PROJECT: "project",
    VOLUME: "volume",
    BUDGET: "budget",
    QUOTA: "quota",
    ALERT: "alert",
}


def parse(prefix: str, id: str, path: tuple[str, ...] = ()) -> UUID:
    """The row's id. Raises NotFound for a malformed id and for an id of another type."""
    actual, _, rest = id.partition("_")
    if actual == prefix and len(rest) == 32:
        try:
            return UUID(rest)
        except ValueError:
            pass
    raise NotFound(NOUNS[prefix], path)


def parse_or_unused(prefix: str, id: str) -> UUID:
    """For filters: an id that can't exist matches no row."""
    try:
        return parse(prefix, id)
    except NotFound:
        return UNUSED_ID


def format_job(seals: Seals, id: int) -> strawberry.ID:
    return strawberry.ID(seals.job_id(id))


def parse_job(seals: Seals, id: str, path: tuple[str, ...] = ()) -> int:
    """Like `parse`, for jobs."""
    number = seals.jobs.open(parse(JOB, id, path).bytes)
    if number is None:
        raise NotFound(NOUNS[JOB], path)
    return int.from_bytes(number)


def format_provider_id(prefix: str, *parts: str) -> str:
    """For objects of the provider, which are known by its own ids."""
    return f"{prefix}_{':'.join(parts)}"


def provider_id(prefix: str, id: str) -> str:
    """The provider's id; callers may give it in either form."""
    return id.removeprefix(f"{prefix}_")


@strawberry.interface(description="An object with a global id; load it with `node` or `nodes`.")
class Node:
    id: strawberry.ID = strawberry.field(
        description="Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."
    )
