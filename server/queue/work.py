"""The base of all job kinds, their classes and priorities, and their arguments as JSON."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import ClassVar
from uuid import UUID

import orjson
from pydantic import TypeAdapter, ValidationError

from server.errors import PilotlightError


class Priority(IntEnum):
    """Order of execution. Waiting jobs overtake newer ones of a higher priority: see `PRIORITY_DELAY`."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class JobClass(StrEnum):
    """What a job is for. Each class has slots and provider calls of its own while the others are busy. Jobs of the
    lined classes run when they have their turn to call the provider, and projects take turns in each line."""

    ENDS = "ends"  # a user wants a machine to end: it costs money until then
    WATCHING = "watching"  # looks at machines and endpoints; needs no turn
    STARTS = "starts"
    CREATES = "creates"


LINED = (JobClass.ENDS, JobClass.STARTS, JobClass.CREATES)


class UnreadableArguments(PilotlightError):
    """A row's arguments do not fit its kind: another version of the code wrote it."""


class Work:
    """Base of all kinds: frozen, slotted dataclasses whose fields are the job's arguments."""

    kind: ClassVar[str]
    priority: ClassVar[Priority] = Priority.NORMAL
    job_class: ClassVar[JobClass] = JobClass.WATCHING
    max_attempts: ClassVar[int | None] = None  # None: the worker's limit
    concurrency: ClassVar[int | None] = None  # how many may run at once in one process; None: the worker's limit
    is_cancellable: ClassVar[bool] = True  # whether a caller may cancel a job of this kind

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__dict__:
            return  # a base of several kinds
        known = _by_kind.setdefault(cls.kind, cls)
        if known.__qualname__ != cls.__qualname__ or known.__module__ != cls.__module__:
            raise TypeError(f"{known.__qualname__} and {cls.__qualname__} are both called {cls.kind}")
        _by_kind[cls.kind] = cls  # `slots=True` creates the class a second time; the second one is used


_by_kind: dict[str, type[Work]] = {}


@dataclass(frozen=True, slots=True)
class OperationWork(Work):
    """Base of the kinds that carry out an operation on an instance."""

    instance_id: UUID
    operation_id: UUID


def declared() -> dict[str, type[Work]]:
    """The kinds that there are by now."""
    return dict(_by_kind)


def is_cancellable(kind: str) -> bool:
    """Whether callers may cancel jobs of this kind; they may cancel those of kinds that this code does not know."""
    return kind not in _by_kind or _by_kind[kind].is_cancellable


def class_of(kind: str) -> type[Work]:
    """The dataclass of a kind."""
    try:
        return _by_kind[kind]
    except KeyError:
        raise UnreadableArguments(f"no such kind of work: {kind}") from None


def to_args(work: Work) -> str:
    """The arguments as JSON, for the job's row."""
    return orjson.dumps(work, default=str).decode()  # default: asyncpg has its own UUID class


def from_args(kind: str, args: str) -> Work:
    """The work of a row. Raises UnreadableArguments if an argument is missing or of another type than declared.
    Unknown arguments are ignored: during an upgrade, newer processes may already write a new one."""
    try:
        return _adapter(class_of(kind)).validate_json(args, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableArguments(f"{'.'.join(map(str, (kind, *first['loc'])))}: {first['msg']}") from None


@cache
def _adapter(cls: type[Work]) -> TypeAdapter[Work]:
    return TypeAdapter(cls)
