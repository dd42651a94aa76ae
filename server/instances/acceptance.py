"""The rows of an accepted create in one statement: one round trip and one commit for all of them.

Written through a session they cost eight round trips, and most of the time of the whole request. What is written is
the same, and so is what forbids it: unique indexes, foreign keys and checks are the tables' own.
"""

from functools import cache
from typing import Any

import asyncpg
import orjson
from sqlalchemy import inspect

from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import Instance, Operation
from server.events.event import EventType
from server.instances.estimates import MEDIAN_SQL
from server.instances.idempotency import Asked, KeyTaken
from server.instances.snapshot import snapshot_of
from server.observe import metrics, origin
from server.observe.traces import span
from server.queue.enqueue import TOPIC, columns_of
from server.queue.kinds import CreateInstance
from server.words import InstanceStatus, OperationKind, OperationPhase, OperationStatus

OUTBOX_TOPIC = "outbox"

# Whether the name is taken, and how long such creates usually take.
LOOK = (
    "SELECT EXISTS (SELECT FROM instance WHERE project_id = $1 AND name = $2 AND status <> 'DELETED') AS is_taken, ("
    + MEDIAN_SQL.format(project_id="$1", kind="$3", product_name="$4", region="$5")
    + ") AS takes"
)

# The key comes first: of many calls with the same one, the others wait there for the first to commit, find it taken
# and write nothing. The two events are one INSERT, so their numbers are drawn in their order.
ACCEPT = """
    WITH taken AS (
        INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id)
        SELECT $1::uuid, $2::text, $3::bytea, $4::uuid WHERE $2::text IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING key
    ), added AS (
        INSERT INTO instance ({instance})
        SELECT {instance} FROM jsonb_populate_record(NULL::instance, $5::jsonb)
        WHERE $2::text IS NULL OR EXISTS (SELECT FROM taken)
        RETURNING id
    ), begun AS (
        INSERT INTO operation ({operation})
        SELECT {operation} FROM jsonb_populate_record(NULL::operation, $6::jsonb)
        WHERE EXISTS (SELECT FROM added)
    ), told AS (
        INSERT INTO outbox (id, type, project_id, instance_id, operation_id, caused_by, data)
        SELECT event.id, event.type, $1, added.id, $4, $7::uuid, event.data
        FROM added, unnest($8::uuid[], $9::text[], $10::jsonb[]) WITH ORDINALITY AS event (id, type, data, place)
        ORDER BY event.place
    ), queued AS (
        INSERT INTO job (kind, args, priority, project_id, instance_id, origin, run_at, due_at)
        SELECT $11, $12::jsonb, $13, $1, added.id, $15, start, start + $14::interval
        FROM added, clock_timestamp() AS start
    )
    SELECT count(*) FROM added
"""

AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)


async def look(database: Database, instance: tuple[Any, str, str, str]) -> asyncpg.Record:
    """`is_taken` and `takes`, for a project, a name, a product and a region."""
    project_id, name, product_name, region = instance
    with span("db.look"):
        return await _fetch(database, LOOK, project_id, name, OperationKind.CREATE.value, product_name, region)


async def accept(database: Database, instance: Instance, asked: Asked) -> Operation:
    """Write a new instance, its operation, their events and the job; raises KeyTaken, and what the tables forbid."""
    moment = now()
    instance.status = InstanceStatus.CREATING
    instance.version = 1
    instance.created_at = instance.updated_at = instance.status_since = moment
    operation = Operation(
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
    shown, begun = snapshot_of(instance), snapshot_of(operation)
    work = CreateInstance(instance_id=instance.id, operation_id=operation.id)
    job = columns_of(work, project_id=instance.project_id)
    row = {**shown, "env": instance.env}
    told = [
        _json({"from": None, "to": InstanceStatus.CREATING, "instance": shown}),
        _json({"operation": begun}),
    ]
    with span("db.accept", instance_id=instance.id, operation_id=operation.id):
        added = await _fetch(
            database,
            _statement(_written(Instance, row), _written(Operation, begun)),
            instance.project_id,
            asked.key,
            asked.fingerprint,
            operation.id,
            _json(row),
            _json(begun),
            asked.by.token_id,
            [new_id(), new_id()],
            [EventType.INSTANCE_CREATED.value, EventType.OPERATION_STARTED.value],
            told,
            job["kind"],
            job["args"],
            job["priority"],
            job["behind"],
            origin.here(),
        )
    if added[0] == 0:
        raise KeyTaken
    metrics.ACCEPTED.add(OperationKind.CREATE.value)
    if database.on_commit is not None:
        database.on_commit({TOPIC, OUTBOX_TOPIC})
    return operation


async def _fetch(database: Database, statement: str, *values: Any) -> asyncpg.Record:
    pool = await database.pool()
    try:
        row = await pool.fetchrow(statement, *values)
    except AWAY as error:
        # What the rest of the code takes for a database that can't be reached, whichever driver met it.
        raise ConnectionError(f"the database went away: {type(error).__name__}") from error
    if row is None:
        raise LookupError("a statement that always answers did not")
    return row


def _written(table: type[Instance] | type[Operation], row: dict[str, Any]) -> tuple[str, ...]:
    """The columns to write: all but those that are empty and have a default of their own."""
    return tuple(name for name in _names(table) if row.get(name) is not None or name not in _defaulted(table))


@cache
def _names(table: type[Instance] | type[Operation]) -> tuple[str, ...]:
    return tuple(attribute.key for attribute in inspect(table).column_attrs)


@cache
def _defaulted(table: type[Instance] | type[Operation]) -> frozenset[str]:
    return frozenset(each.key for each in inspect(table).column_attrs if each.columns[0].server_default is not None)  # type: ignore[attr-defined]


@cache
def _statement(instance: tuple[str, ...], operation: tuple[str, ...]) -> str:
    return ACCEPT.format(instance=", ".join(instance), operation=", ".join(operation))


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
