"""Ids as callers see them: opaque, and recognisable by their first letters in a log or a chat."""

from uuid import UUID

from server.errors import NotFound

INSTANCE = "inst"
OPERATION = "op"
EVENT = "evt"
TOKEN = "tok"
JOB = "job"
DELIVERY = "dlv"
PROJECT = "prj"

NOBODY = UUID(int=0)  # no row has it

WORDS = {
    INSTANCE: "instance",
    OPERATION: "operation",
    EVENT: "event",
    TOKEN: "token",
    JOB: "job",
    DELIVERY: "delivery",
    PROJECT: "project",
}


def shown(prefix: str, id: UUID) -> str:
    return f"{prefix}_{id.hex}"


def read(prefix: str, id: str, path: tuple[str, ...] = ()) -> UUID:
    """The row's id. Nonsense and other things' ids are simply not found."""
    found, _, rest = id.partition("_")
    if found == prefix and len(rest) == 32:
        try:
            return UUID(rest)
        except ValueError:
            pass
    raise NotFound(WORDS[prefix], path)


def shown_number(prefix: str, id: int) -> str:
    return f"{prefix}_{id}"


def read_number(prefix: str, id: str, path: tuple[str, ...] = ()) -> int:
    """The same for rows that are numbered."""
    found, _, rest = id.partition("_")
    if found == prefix and rest.isascii() and rest.isdigit() and len(rest) <= 18:
        return int(rest)
    raise NotFound(WORDS[prefix], path)
