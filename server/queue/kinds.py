"""Every kind of work with its typed arguments: read this first. A new kind is one more dataclass here."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import orjson

from server.errors import PilotlightError, StartupProblem


class Priority(IntEnum):
    """Who goes first. It ages: see `HEAD_START` in `enqueue.py`."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class Unreadable(PilotlightError):
    """A row's arguments do not fit its kind: it was written by other code than this."""


class Work:
    """The base of all kinds: frozen, slotted dataclasses whose fields are the job's arguments."""

    kind: ClassVar[str]
    priority: ClassVar[Priority] = Priority.NORMAL
    max_attempts: ClassVar[int | None] = None  # None: the worker's own limit
    concurrency: ClassVar[int | None] = (
        None  # how many may run at once in one process; None: as many as there are slots
    )

    def __init_subclass__(cls) -> None:
        known = _by_kind.setdefault(cls.kind, cls)
        if known.__qualname__ != cls.__qualname__ or known.__module__ != cls.__module__:
            raise TypeError(f"{known.__qualname__} and {cls.__qualname__} are both called {cls.kind}")
        _by_kind[cls.kind] = cls  # `slots=True` makes the class a second time, and that one is the real one


_by_kind: dict[str, type[Work]] = {}


@dataclass(frozen=True, slots=True)
class CreateInstance(Work):
    """Find a place for an instance and ask the provider for it."""

    kind = "CREATE_INSTANCE"
    priority = Priority.HIGH

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class MonitorInstance(Work):
    """Follow an instance until the provider says it runs."""

    kind = "MONITOR_INSTANCE"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class CheckHealth(Work):
    """Probe a running instance's endpoints until they answer; without an operation once, because somebody asked."""

    kind = "HEALTH_CHECK"
    concurrency = 1000  # it waits for others nearly all of its time

    instance_id: UUID
    operation_id: UUID | None = None
    asked_at: float | None = None  # seconds since 1970; results from before are another check's


@dataclass(frozen=True, slots=True)
class StartInstance(Work):
    """Start an instance that has exited."""

    kind = "START_INSTANCE"
    priority = Priority.HIGH

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class MonitorStartup(Work):
    """Follow a started, restarted or migrated instance until the provider says it runs."""

    kind = "MONITOR_STARTUP"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class StopInstance(Work):
    """Stop an instance, and see that it has exited."""

    kind = "STOP_INSTANCE"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class RestartInstance(Work):
    """Stop an instance and start it again at once."""

    kind = "RESTART_INSTANCE"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class MigrateInstance(Work):
    """Move an instance to another node of its region."""

    kind = "MIGRATE_INSTANCE"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class UpdateInstance(Work):
    """Give an instance other ports or a larger disk."""

    kind = "UPDATE_INSTANCE"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class DeleteInstance(Work):
    """Remove an instance at the provider, and see that it is gone."""

    kind = "DELETE_INSTANCE"

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class SendWebhook(Work):
    """Send one message to a receiver, again and again until it has arrived or is given up."""

    kind = "SEND_WEBHOOK"
    max_attempts = 20  # of runs that went wrong here; the receiver's failures are counted with the delivery
    concurrency = 256  # it waits for others nearly all of its time

    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class Reconcile(Work):
    """Compare every row with the provider's list, and put right what differs."""

    kind = "RECONCILE"
    priority = Priority.LOW
    concurrency = 1


@dataclass(frozen=True, slots=True)
class WatchReclaim(Work):
    """Look at a spot instance when its time is over, until it is seen to be gone or to stay."""

    kind = "WATCH_RECLAIM"

    instance_id: UUID


@dataclass(frozen=True, slots=True)
class CleanUp(Work):
    """Forget what is kept no longer."""

    kind = "CLEANUP"
    priority = Priority.LOW
    concurrency = 1


DECLARED: Mapping[str, type[Work]] = dict(_by_kind)


def check_handled(handlers: Mapping[str, object]) -> None:
    """Refuse to start with a kind that nobody handles: its jobs would wait for ever."""
    missing = sorted(DECLARED.keys() - handlers.keys())
    if missing:
        raise StartupProblem(f"no handler for jobs of kind {', '.join(missing)}")


def class_of(kind: str) -> type[Work]:
    """The dataclass of a kind."""
    try:
        return _by_kind[kind]
    except KeyError:
        raise Unreadable(f"no such kind of work: {kind}") from None


def to_args(work: Work) -> str:
    """The arguments as JSON, for the job's row."""
    readers = _readers(type(work))
    # default: the driver has a UUID class of its own, which orjson does not take for one.
    return orjson.dumps({name: getattr(work, name) for name in readers}, default=str).decode()


def from_args(kind: str, args: str) -> Work:
    """The work that a row asks for, with every argument of the declared type; raises Unreadable if it can't be."""
    cls = class_of(kind)
    given = orjson.loads(args)
    if not isinstance(given, dict):
        raise Unreadable(f"the arguments of {kind} are not an object")
    values: dict[str, Any] = {}
    for name, (read, is_required) in _readers(cls).items():
        if name in given:
            try:
                values[name] = read(given[name])
            except (TypeError, ValueError) as error:
                raise Unreadable(f"{kind}.{name}: {error}") from None
        elif is_required:
            raise Unreadable(f"{kind}.{name} is missing")
    # Unknown names are passed over: during an upgrade newer processes may already write a new argument.
    return cls(**values)


@cache
def _readers(cls: type[Work]) -> dict[str, tuple[Callable[[Any], Any], bool]]:
    """For each field how to read it, and whether it must be there."""
    hints = get_type_hints(cls)
    return {
        field.name: (
            _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(cls)  # pyright: ignore[reportArgumentType] - every subclass is a dataclass
    }


def _reader(hint: Any) -> Callable[[Any], Any]:
    if hint is UUID:
        return _read_uuid
    if hint in (str, int, bool, float):
        return _exactly(hint)
    if get_origin(hint) in (Union, UnionType):
        inner = [choice for choice in get_args(hint) if choice is not NoneType]
        if len(inner) == 1 and len(get_args(hint)) == 2:
            read = _reader(inner[0])
            return lambda value: None if value is None else read(value)
    raise TypeError(f"a job's argument can't be of type {hint}")


def _read_uuid(value: Any) -> UUID:
    if type(value) is not str:
        raise TypeError(f"expected a UUID, found {type(value).__name__}")
    return UUID(value)


def _exactly(wanted: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            raise TypeError(f"expected {wanted.__name__}, found {type(value).__name__}")
        return value

    return read
