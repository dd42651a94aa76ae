"""Writes accepted creates: those that arrive at about the same time share one statement and one commit.

Through a session, one create costs eight round trips and most of the time of the whole request. The rows come from the
same builders as everywhere else, and unique indexes, foreign keys and checks apply as usual. Each create is accepted or
refused on its own: if a constraint rejects one of a batch, the whole statement is rolled back and the creates of the
batch are written one by one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from server.batching import GroupCommit
from server.catalog.owners import OF_OTHERS, kinds_of, wanted_objects
from server.db.database import Database
from server.db.dry_run import DryRun
from server.db.outages import is_database_unavailable
from server.db.tables import Instance, Operation
from server.enums import OperationKind, ProviderObjectKind
from server.events import outbox
from server.events.event import EventType
from server.instances import operations, transitions
from server.instances.create_line import CreateLine
from server.instances.estimates import CreateEstimates
from server.instances.events import columns, detached
from server.instances.idempotency import Accepted, IdempotentRequest
from server.instances.limits import arming
from server.instances.limits.policy import Policy
from server.observe import metrics
from server.observe.tracing import span
from server.queue.enqueue import TOPIC, FairShare, columns_of
from server.queue.kinds import CreateInstance, EndLifetime, SendWebhook

BATCH_MAX = 64  # creates per commit; with more, each waits longer for the others than the commit takes
BATCHES_AT_ONCE = 2


class Conflict(Exception):
    """The name or the idempotency key is taken."""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """What a create would collide with, and the project's rules for lifetimes.

    `foreign`: kinds of the named objects that belong to another project.
    """

    is_name_taken: bool
    is_key_used: bool
    policy: Policy
    foreign: frozenset[ProviderObjectKind]


@dataclass(frozen=True, slots=True)
class _Name:
    project_id: UUID
    name: str
    key: str | None
    objects: str | None


@dataclass(frozen=True, slots=True)
class _Create:
    """One create as column values, and as the two objects that the caller gets."""

    request: IdempotentRequest
    accepted: Accepted
    instance: dict[str, Any]
    operation: dict[str, Any]
    events: list[dict[str, Any]]
    deliveries: list[dict[str, Any]]
    jobs: list[dict[str, Any]]

    @classmethod
    def of(cls, fields: Mapping[str, Any], request: IdempotentRequest, share: FairShare) -> "_Create":
        token_id = request.by.token_id
        row = transitions.new_row(fields)
        instance = detached(Instance, row)
        operation_row = operations.new_row(
            instance, OperationKind.CREATE, by=token_id, estimated_ready_at=instance.estimated_ready_at
        )
        operation = detached(Operation, operation_row)
        cause = transitions.Cause(operation.id, token_id)
        events = (
            transitions.status_event(instance, previous=None, cause=cause),
            operations.operation_event(instance, EventType.OPERATION_STARTED, operation),
        )
        deliveries = [each.delivery for each in events if each.delivery is not None]
        works = [
            *(SendWebhook(each["id"]) for each in deliveries),
            CreateInstance(instance.id, operation.id, request.digest),
        ]
        jobs = [
            columns_of(work, instance.project_id, share, instance_id=instance.id, operation_id=operation.id)
            for work in works
        ]
        if instance.lifetime_due_at is not None:
            job = columns_of(EndLifetime(instance.id), None, share, operation_id=operation.id)
            jobs.append({**job, **arming.timed_job(instance)})
        return cls(
            request=request,
            accepted=Accepted(instance, operation),
            instance=row,
            operation=operation_row,
            events=[each.event for each in events],
            deliveries=deliveries,
            jobs=jobs,
        )


class CreateBatcher:
    """Batches the creates of a process. The runtime owns one; a dry run has its own."""

    def __init__(self, database: Database, line: CreateLine | None = None) -> None:
        self.database = database
        self.line = line or CreateLine(database)
        self.estimates = CreateEstimates(database)
        self._is_dry_run = isinstance(database, DryRun)
        self._reads: GroupCommit[_Name, Conflicts] = GroupCommit(
            self._find_conflicts, largest=BATCH_MAX, at_once=BATCHES_AT_ONCE
        )
        # Dry runs are written alone: a name that another dry run uses must not refuse this one.
        self._writes: GroupCommit[_Create, bool] = GroupCommit(
            self._insert, largest=1 if self._is_dry_run else BATCH_MAX, at_once=BATCHES_AT_ONCE
        )

    async def find_conflicts(
        self,
        *,
        project_id: UUID,
        name: str,
        key: str | None,
        objects: Iterable[tuple[ProviderObjectKind, str | None]] = (),
    ) -> Conflicts:
        """Whether the name is taken, the key was used and an object is foreign; one query for all that ask at the same
        time."""
        with span("db.look"):
            return await self._reads.add(_Name(project_id, name, key, wanted_objects(objects)))

    async def insert(self, fields: Mapping[str, Any], request: IdempotentRequest) -> Accepted:
        """Write an instance, its operation, their events, deliveries and jobs.

        Raises Conflict if the name or the key is taken, and asyncpg's error for any other constraint.
        """
        with span("db.accept") as current:
            create = _Create.of(fields, request, self.database.shared(FairShare))
            current.note(instance_id=create.instance["id"], operation_id=create.operation["id"])
            is_added = await self._writes.add(create)
        if not is_added:
            raise Conflict
        return create.accepted

    async def _find_conflicts(self, names: Sequence[_Name]) -> list[Conflicts]:
        rows = await self._fetch(
            CONFLICTS,
            [each.project_id for each in names],
            [each.name for each in names],
            [each.key for each in names],
            [each.objects for each in names],
        )
        return [
            Conflicts(row[0], row[1], Policy.of(None if row[2] is None else orjson.loads(row[2])), kinds_of(row[3]))
            for row in rows
        ]

    async def _insert(self, creates: Sequence[_Create]) -> list[bool | Exception]:
        """Write a batch; after a constraint error, which rolls back all of it, write its creates one by one."""
        try:
            rows = await self._fetch(_statement(), *_parameters(creates))
        except asyncpg.PostgresError as error:
            if len(creates) == 1:
                return [error]
            return [(await self._insert([create]))[0] for create in creates]
        except OSError as error:
            return [error] * len(creates)
        if rows and not self._is_dry_run:
            metrics.ACCEPTED.add(OperationKind.CREATE.value, by=len(rows))
        if rows and self.database.on_commit is not None:
            self.database.on_commit({TOPIC, outbox.TOPIC})
        added = {row[0] for row in rows}
        return [create.instance["id"] in added for create in creates]

    async def _fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        try:
            return await self.database.raw.fetch(statement, *values)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            if not is_database_unavailable(error):
                raise
            # An outage is an OSError, also if the driver has its own class for it.
            raise ConnectionError(f"the database went away: {type(error).__name__}") from error


def _parameters(creates: Sequence[_Create]) -> tuple[Any, ...]:
    """In the order of the statement's parameters."""
    jobs = [
        {**job, "args": orjson.Fragment(job["args"]), "due_delay": job["due_delay"].total_seconds()}
        for create in creates
        for job in create.jobs
    ]
    return (
        [each.operation["id"] for each in creates],
        [each.instance["id"] for each in creates],
        [each.instance["project_id"] for each in creates],
        [each.request.key for each in creates],
        [each.request.fingerprint for each in creates],
        _json([each.instance for each in creates if each.request.key is None]),
        _json([each.instance for each in creates if each.request.key is not None]),
        _json([each.operation for each in creates]),
        _json([event for each in creates for event in each.events]),
        _json([delivery for each in creates for delivery in each.deliveries]),
        _json(jobs),
    )


def _json(rows: list[dict[str, Any]]) -> str:
    return orjson.dumps(rows, default=_id).decode()


def _id(value: Any) -> str:
    """orjson knows uuid.UUID, but not the driver's subclass of it."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError


@cache
def _statement() -> str:
    return INSERT.format(instance=", ".join(columns(Instance)), operation=", ".join(columns(Operation)))


CONFLICTS = f"""
    SELECT EXISTS (SELECT FROM instance
                   WHERE project_id = new.project AND name = new.wanted_name AND status <> 'DELETED') AS is_name_taken,
           new.key IS NOT NULL AND
           EXISTS (SELECT FROM idempotency_key AS used
                   WHERE used.project_id = new.project AND used.key = new.key) AS is_key_used,
           (SELECT to_jsonb(policy) FROM lifetime_policy AS policy WHERE policy.project_id = new.project) AS policy,
           CASE WHEN new.objects IS NOT NULL THEN {OF_OTHERS.format(objects="new.objects", project="new.project")} END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::jsonb[])
        WITH ORDINALITY AS new (project, wanted_name, key, objects, place)
    ORDER BY place
"""

# Keys come first: of many calls with the same key, the others wait there for the first to commit, then find the key
# taken and write nothing. Keys are inserted in one order, so that two processes never deadlock on them.
# A taken name leaves out a create without a key. For a create with a key it fails the statement, because the key is
# already inserted. The two events of an instance are in order, so their numbers are drawn in that order.
INSERT = """
    WITH request AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[])
            AS each (operation_id, instance_id, project_id, key, fingerprint)
    ), reserved AS (
        INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id)
        SELECT project_id, key, fingerprint, operation_id FROM request WHERE key IS NOT NULL ORDER BY project_id, key
        ON CONFLICT DO NOTHING
        RETURNING operation_id
    ), without_key AS (
        INSERT INTO instance ({instance})
        SELECT {instance} FROM jsonb_populate_recordset(NULL::instance, $6::jsonb) AS new
        ORDER BY new.project_id, new.name
        ON CONFLICT (project_id, name) WHERE status <> 'DELETED' DO NOTHING
        RETURNING id
    ), with_key AS (
        INSERT INTO instance ({instance})
        SELECT {instance} FROM jsonb_populate_recordset(NULL::instance, $7::jsonb) AS new
        WHERE new.id IN (SELECT instance_id FROM request JOIN reserved USING (operation_id))
        ORDER BY new.project_id, new.name
        RETURNING id
    ), added AS MATERIALIZED (
        SELECT id FROM without_key UNION ALL SELECT id FROM with_key
    ), operations AS (
        INSERT INTO operation ({operation})
        SELECT {operation} FROM jsonb_populate_recordset(NULL::operation, $8::jsonb) AS new
        WHERE new.instance_id IN (SELECT id FROM added)
    ), events AS (
        INSERT INTO outbox (id, type, project_id, instance_id, operation_id, caused_by, data)
        SELECT id, type, project_id, instance_id, operation_id, caused_by, data
        FROM jsonb_populate_recordset(NULL::outbox, $9::jsonb) WITH ORDINALITY AS new
        WHERE new.instance_id IN (SELECT id FROM added)
        ORDER BY new.ordinality
    ), deliveries AS (
        INSERT INTO delivery (id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order,
                              attempts, counted)
        SELECT id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order, attempts, counted
        FROM jsonb_populate_recordset(NULL::delivery, $10::jsonb) AS new
        WHERE new.instance_id IN (SELECT id FROM added)
    ), jobs AS (
        INSERT INTO job (kind, args, priority, project_id, instance_id, origin, unique_key, run_at, due_at, pause)
        SELECT kind, args, priority, project_id, instance_id, origin, unique_key, coalesce(at, start),
               coalesce(at, start) + make_interval(secs => due_delay), CASE WHEN at IS NULL THEN interval '0' END
        FROM clock_timestamp() AS start,
             jsonb_to_recordset($11::jsonb) AS new (kind text, args jsonb, priority smallint, project_id uuid,
                                                    instance_id uuid, origin text, due_delay float8, unique_key text,
                                                    at timestamptz)
        WHERE new.instance_id IN (SELECT id FROM added)
    )
    SELECT id FROM added
"""
