"""The rows of accepted creates: those that come at about the same time are written in one statement and one commit.

Written through a session, one create costs eight round trips and most of the time of the whole request. What is
written is the same, and so is what forbids it: unique indexes, foreign keys and checks are the tables' own. Each
create is accepted or refused by itself; where the tables forbid one of a batch, the batch leaves nothing and its
creates are written one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import asyncpg
import orjson
from sqlalchemy import inspect

from server.clock import new_id, now
from server.db.engine import Database
from server.db.rehearsal import Rehearsal
from server.db.tables import DeliveryStatus, Instance, Operation
from server.events.event import EventType
from server.instances.acceptance_sql import ACCEPT, LOOK
from server.instances.idempotency import Asked
from server.instances.snapshot import LEFT_OUT
from server.instances.together import Together
from server.observe import metrics, origin
from server.observe.traces import span
from server.queue.enqueue import TOPIC, columns_of
from server.queue.kinds import CreateInstance, SendWebhook
from server.webhooks.deliveries import is_wanted
from server.webhooks.payload import body_of
from server.words import InstanceStatus, OperationKind, OperationPhase, OperationStatus

R = TypeVar("R", Instance, Operation)

OUTBOX_TOPIC = "outbox"
LARGEST = 64  # creates in one commit; beyond that, each waits longer for the others than the commit takes
AT_ONCE = 2

AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)


class NotAdded(Exception):
    """Another has the name, or the key."""


@dataclass(frozen=True, slots=True)
class Looked:
    """How things stand before a create: whether its name is taken, and whether its key was used."""

    is_taken: bool
    is_known: bool


@dataclass(frozen=True, slots=True)
class _Name:
    project_id: UUID
    name: str
    key: str | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One create as it will be written."""

    asked: Asked
    instance: Instance
    operation: Operation
    row: dict[str, Any]
    begun: dict[str, Any]
    events: tuple[tuple[UUID, str, str], ...]
    delivery: dict[str, Any] | None
    origin: str | None
    columns: tuple[tuple[str, ...], tuple[str, ...]]


async def look(database: Database, *, project_id: UUID, name: str, key: str | None) -> Looked:
    """Read together with those who look at the same time."""
    with span("db.look"):
        return await _desk(database).looks.add(_Name(project_id, name, key))


async def accept(database: Database, instance: Instance, asked: Asked) -> Operation:
    """Write a new instance, its operation, their events, the job, and what its webhook is to be told.

    Raises NotAdded when the name or the key is taken, and whatever else the tables forbid.
    """
    moment = now()
    vars(instance).update(
        status=InstanceStatus.CREATING, version=1, created_at=moment, updated_at=moment, status_since=moment
    )
    operation = row_of(
        Operation,
        id=new_id(),
        project_id=instance.project_id,
        instance_id=instance.id,
        kind=OperationKind.CREATE,
        status=OperationStatus.QUEUED,
        phase=OperationPhase.WAITING,
        version=1,
        requested_by=asked.by.token_id,
        created_at=moment,
        estimated_ready_at=instance.estimated_ready_at,
        before={},
        wanted={},
    )
    with span("db.accept", instance_id=instance.id, operation_id=operation.id):
        is_added = await _desk(database).creates.add(_wanted(instance, operation, asked))
    if not is_added:
        raise NotAdded
    return operation


def row_of(table: type[R], **values: Any) -> R:
    """A row outside of any session, with every column. SQLAlchemy's own way counts each value as a change."""
    row = table()
    vars(row).update(dict.fromkeys(_names(table)), **values)
    return row


class _Desk:
    """One per database of a process: where creates meet."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_rehearsal = isinstance(database, Rehearsal)
        self.looks: Together[_Name, Looked] = Together(self._look, largest=LARGEST, at_once=AT_ONCE)
        # What is only tried is tried alone: nobody is refused for a name that another does not really take.
        largest = 1 if self._is_rehearsal else LARGEST
        self.creates: Together[_Wanted, bool] = Together(self._accept, largest=largest, at_once=AT_ONCE)

    async def _look(self, names: Sequence[_Name]) -> list[Looked]:
        rows = await self._fetch(
            LOOK, [each.project_id for each in names], [each.name for each in names], [each.key for each in names]
        )
        return [Looked(row[0], row[1]) for row in rows]

    async def _accept(self, wanted: Sequence[_Wanted]) -> list[bool | Exception]:
        answers: dict[UUID, bool | Exception] = {}
        for columns in {each.columns for each in wanted}:  # as good as always the same for all
            answers |= await self._alike([each for each in wanted if each.columns == columns])
        return [answers[each.instance.id] for each in wanted]

    async def _alike(self, wanted: Sequence[_Wanted]) -> dict[UUID, bool | Exception]:
        """Those with the same columns. Nobody's failure is another's: it is told to whom it concerns."""
        try:
            return await self._write(wanted)
        except asyncpg.PostgresError as error:
            if len(wanted) == 1:
                return {wanted[0].instance.id: error}
        except (OSError, TimeoutError) as error:
            return {each.instance.id: error for each in wanted}
        # Something forbids one of them. All of it was taken back, so each can be tried by itself.
        answers: dict[UUID, bool | Exception] = {}
        for each in wanted:
            answers |= await self._alike([each])
        return answers

    async def _write(self, wanted: Sequence[_Wanted]) -> dict[UUID, bool | Exception]:
        rows = await self._fetch(_statement(*wanted[0].columns), *_values(wanted))
        if rows and not self._is_rehearsal:
            metrics.ACCEPTED.add(OperationKind.CREATE.value, by=len(rows))
        if rows and self._database.on_commit is not None:
            self._database.on_commit({TOPIC, OUTBOX_TOPIC})
        added = {row[0] for row in rows}
        return {each.instance.id: each.instance.id in added for each in wanted}

    async def _fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        pool = self._database.raw
        try:
            return await pool.fetch(statement, *values)
        except AWAY as error:
            # What the rest of the code takes for a database that can't be reached, whichever driver met it.
            raise ConnectionError(f"the database went away: {type(error).__name__}") from error


_desks: WeakKeyDictionary[Database, _Desk] = WeakKeyDictionary()


def _desk(database: Database) -> _Desk:
    desk = _desks.get(database)
    if desk is None:
        desk = _desks[database] = _Desk(database)
    return desk


def _wanted(instance: Instance, operation: Operation, asked: Asked) -> _Wanted:
    row, begun = dict(vars(instance)), dict(vars(operation))
    del row["_sa_instance_state"], begun["_sa_instance_state"]
    shown = {name: value for name, value in row.items() if name not in LEFT_OUT}
    created = {"from": None, "to": InstanceStatus.CREATING, "instance": orjson.Fragment(_json(shown))}
    started = {"operation": {name: value for name, value in begun.items() if name not in LEFT_OUT}}
    event_id = new_id()
    return _Wanted(
        asked=asked,
        instance=instance,
        operation=operation,
        row=row,
        begun=begun,
        events=(
            (event_id, EventType.INSTANCE_CREATED.value, _json(created)),
            (new_id(), EventType.OPERATION_STARTED.value, _json(started)),
        ),
        delivery=_delivery(instance, event_id, asked, shown),
        origin=origin.here(operation_id=operation.id),
        columns=(_written(Instance, row), _written(Operation, begun)),
    )


def _delivery(instance: Instance, event_id: UUID, asked: Asked, shown: dict[str, Any]) -> dict[str, Any] | None:
    type = EventType.INSTANCE_CREATED
    if not is_wanted(instance, type):
        return None
    moment = now()
    snapshot: dict[str, Any] = orjson.loads(_json(shown))
    body = body_of(
        event_id=event_id,
        type=type,
        occurred_at=moment,
        instance_id=instance.id,
        caused_by=asked.by.token_id,
        data={"from": None, "to": InstanceStatus.CREATING},
        instance=snapshot,
    )
    return {
        "id": new_id(),
        "project_id": instance.project_id,
        "instance_id": instance.id,
        "event_id": event_id,
        "event_type": type.value,
        "url": instance.webhook_url,
        "body": body,
        "status": DeliveryStatus.PENDING,
        "keeps_order": True,
        "attempts": 0,
        "counted": 0,
    }


def _values(wanted: Sequence[_Wanted]) -> tuple[Any, ...]:
    """In the order of the statement's parameters."""
    works = [CreateInstance(instance_id=each.instance.id, operation_id=each.operation.id) for each in wanted]
    jobs = [columns_of(work, project_id=each.instance.project_id) for work, each in zip(works, wanted, strict=True)]
    deliveries = [each.delivery for each in wanted if each.delivery is not None]
    sends = [
        (each["instance_id"], columns_of(SendWebhook(delivery_id=each["id"]), project_id=each["project_id"]))
        for each in deliveries
    ]
    events = [(each.instance.id, *event) for each in wanted for event in each.events]
    return (
        [each.operation.id for each in wanted],
        [each.instance.id for each in wanted],
        [each.instance.project_id for each in wanted],
        [each.asked.key for each in wanted],
        [each.asked.fingerprint for each in wanted],
        [each.asked.by.token_id for each in wanted],
        [job["args"] for job in jobs],
        [job["behind"] for job in jobs],
        [each.origin for each in wanted],
        _json([each.row for each in wanted if each.asked.key is None]),
        _json([each.row for each in wanted if each.asked.key is not None]),
        _json([each.begun for each in wanted]),
        [id for _, id, _, _ in events],
        [instance_id for instance_id, _, _, _ in events],
        [type for _, _, type, _ in events],
        [data for _, _, _, data in events],
        _json(deliveries),
        jobs[0]["kind"],
        jobs[0]["priority"],
        [instance_id for instance_id, _ in sends],
        [job["kind"] for _, job in sends],
        [job["args"] for _, job in sends],
        [job["priority"] for _, job in sends],
        [job["behind"] for _, job in sends],
    )


def _written(table: type[Instance] | type[Operation], row: dict[str, Any]) -> tuple[str, ...]:
    """The columns to write: all but those that are empty and have a default of their own."""
    return tuple(name for name in _names(table) if row.get(name) is not None or name not in _defaulted(table))


@cache
def _names(table: type[Instance] | type[Operation]) -> tuple[str, ...]:
    return tuple(attribute.key for attribute in inspect(table).column_attrs)


@cache
def _defaulted(table: type[Instance] | type[Operation]) -> frozenset[str]:
    return frozenset(each.key for each in inspect(table).column_attrs if each.columns[0].server_default is not None)  # type: ignore[attr-defined]


# Those that `_delivery` gives a value; the others are empty, or drawn by the database.
_DELIVERY = (
    "id",
    "project_id",
    "instance_id",
    "event_id",
    "event_type",
    "url",
    "body",
    "status",
    "keeps_order",
    "attempts",
    "counted",
)


@cache
def _statement(instance: tuple[str, ...], operation: tuple[str, ...]) -> str:
    return ACCEPT.format(instance=", ".join(instance), operation=", ".join(operation), delivery=", ".join(_DELIVERY))


def _json(value: Any) -> str:
    return orjson.dumps(value, default=_plain).decode()


def _plain(value: Any) -> str:
    """The driver's own kind of UUID."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError
