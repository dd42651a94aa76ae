"""Writes accepted creates: those that arrive at about the same time share one statement and one commit.

Through a session, one create costs eight round trips and most of the time of the whole request. The rows come from the
same builders as everywhere else, and unique indexes, foreign keys and checks apply as usual. Each create is accepted or
refused on its own: if a constraint rejects one of a batch, the whole statement is rolled back and the creates of the
batch are written one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from server.audit.record import AuditRecord, current_record
from server.batching import GroupCommit
from server.clock import format_id
from server.db.database import Database
from server.db.dry_run import DryRun
from server.db.tables import Instance, Operation
from server.enums import OperationKind
from server.errors import Refused
from server.events import outbox
from server.events.event import EventType
from server.idempotency import IdempotentRequest
from server.instances import operations, transitions
from server.instances.commands.create_conflicts import (
    BATCH_MAX,
    BATCHES_AT_ONCE,
    ConflictLookup,
    Question,
    fetch,
    outage_as_os_error,
)
from server.instances.commands.create_statement import insert_statement, to_json
from server.instances.create_line import CreateLine
from server.instances.estimates import CreateEstimates
from server.instances.events import detached
from server.instances.idempotency import Accepted
from server.instances.limits import arming
from server.observe import metrics
from server.observe.tracing import span
from server.queue.enqueue import TOPIC, FairShare, columns_of
from server.queue.kinds import CreateInstance, EndLifetime, SendWebhook
from server.spend.admission import Admission, Want
from server.volumes.attach import MountedVolume


class Conflict(Exception):
    """The name or the idempotency key is taken."""


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
    attachments: list[dict[str, Any]]
    want: Want | None
    audit: AuditRecord | None
    unasked: Question | None

    @classmethod
    def of(
        cls,
        fields: Mapping[str, Any],
        request: IdempotentRequest,
        share: FairShare,
        usual: timedelta | None,
        volumes: Sequence[MountedVolume],
        want: Want | None,
        wanted: Mapping[str, Any],
        unasked: Question | None,
    ) -> "_Create":
        token_id = request.by.token_id
        row = transitions.new_row(fields)
        instance = detached(Instance, row)
        operation_row = operations.new_row(
            instance,
            OperationKind.CREATE,
            by=token_id,
            estimated_ready_at=instance.estimated_ready_at,
            wanted=dict(wanted),
            **({} if want is None else want.reserve),
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
            CreateInstance(instance.id, operation.id, request.digest, None if usual is None else usual.total_seconds()),
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
            attachments=[volume.attachment(instance.id) for volume in volumes],
            want=want,
            audit=current_record(),
            unasked=unasked,
        )


class CreateBatcher:
    """Batches the creates of a process. The runtime owns one; a dry run has its own."""

    def __init__(self, database: Database, line: CreateLine | None = None) -> None:
        self.database = database
        self.line = line or CreateLine(database)
        self.estimates = CreateEstimates(database)
        self.lookup = ConflictLookup(database)
        self._is_dry_run = isinstance(database, DryRun)
        # Dry runs are written alone: a name that another dry run uses must not refuse this one.
        self._writes: GroupCommit[_Create, bool] = GroupCommit(
            self._insert, largest=1 if self._is_dry_run else BATCH_MAX, at_once=BATCHES_AT_ONCE
        )
        # The second waits for the budgets that the first has locked, and begins while the first commits.
        self._guarded: GroupCommit[_Create, bool] = GroupCommit(
            self._insert_guarded, largest=1 if self._is_dry_run else BATCH_MAX, at_once=BATCHES_AT_ONCE
        )

    async def insert(
        self,
        fields: Mapping[str, Any],
        request: IdempotentRequest,
        *,
        usual: timedelta | None = None,
        volumes: Sequence[MountedVolume] = (),
        want: Want | None = None,
        is_guarded: bool = False,
        wanted: Mapping[str, Any] | None = None,
        unasked: Question | None = None,
    ) -> Accepted:
        """Write an instance, its operation, their events, deliveries and jobs, and hold its volumes. `usual`: see
        `CreateInstance`; `wanted`: see `Operation`.

        `want` is what it may cost; with `is_guarded` it is admitted against the project's budgets and quotas.
        `unasked`: conflicts that were not looked for; the statement does, and one of them is a Conflict. Raises
        Conflict if the name or the key is taken, BudgetExceeded, QuotaExceeded, and asyncpg's error for any other
        constraint.
        """
        with span("db.accept") as current:
            share = self.database.shared(FairShare)
            create = _Create.of(fields, request, share, usual, volumes, want, wanted or {}, unasked)
            current.note(instance_id=create.instance["id"], operation_id=create.operation["id"])
            is_added = await (self._guarded if is_guarded else self._writes).add(create)
        if not is_added:
            raise Conflict
        if create.audit is not None and not self._is_dry_run:
            create.audit.is_written = True
        return create.accepted

    async def _insert(self, creates: Sequence[_Create]) -> list[bool | Exception]:
        """Write a batch; after a constraint error, which rolls back all of it, write its creates one by one."""
        try:
            rows = await fetch(self.database, *_statement(creates))
        except asyncpg.PostgresError as error:
            if len(creates) == 1:
                return [error]
            return [(await self._insert([create]))[0] for create in creates]
        except OSError as error:
            return [error] * len(creates)
        return self._added(creates, rows)

    async def _insert_guarded(self, creates: Sequence[_Create]) -> list[bool | Exception]:
        """The same after admission, in one transaction per project. A refused create writes nothing."""
        by_project: dict[UUID, list[int]] = {}
        for place, create in enumerate(creates):
            by_project.setdefault(create.instance["project_id"], []).append(place)
        results: dict[int, bool | Exception] = {}
        for places in by_project.values():
            outcomes = await self._insert_admitted([creates[place] for place in places])
            results |= zip(places, outcomes, strict=True)
        return [results[place] for place in range(len(creates))]

    async def _insert_admitted(self, creates: Sequence[_Create]) -> list[bool | Exception]:
        refused: dict[UUID, Exception] = {}
        rows: list[asyncpg.Record] = []
        wants = [create.want for create in creates if create.want is not None]
        statement = _statement(creates)  # now, while an earlier batch still holds the budgets
        try:
            with outage_as_os_error():
                async with self.database.raw.transaction() as connection:
                    admission = await Admission.lock(connection.fetch, creates[0].instance["project_id"], wants)
                    for create in creates:
                        try:
                            if create.want is not None:
                                admission.admit(create.want)
                        except Refused as error:
                            refused[create.instance["id"]] = error
                    admitted = [create for create in creates if create.instance["id"] not in refused]
                    if admitted:
                        rows = await connection.fetch(*(_statement(admitted) if refused else statement))
        except asyncpg.PostgresError as error:
            if len(creates) == 1:
                return [error]
            return [(await self._insert_admitted([create]))[0] for create in creates]
        except OSError as error:
            return [error] * len(creates)
        added = dict(zip((create.instance["id"] for create in admitted), self._added(admitted, rows), strict=True))
        return [refused.get(create.instance["id"]) or added[create.instance["id"]] for create in creates]

    def _added(self, creates: Sequence[_Create], rows: Sequence[asyncpg.Record]) -> list[bool | Exception]:
        if rows and not self._is_dry_run:
            metrics.ACCEPTED.add(OperationKind.CREATE.value, by=len(rows))
        if rows and self.database.on_commit is not None:
            self.database.on_commit({TOPIC, outbox.TOPIC})
        added = {row[0] for row in rows}
        return [create.instance["id"] in added for create in creates]


def _statement(creates: Sequence[_Create]) -> tuple[Any, ...]:
    """The statement that writes these creates, and its values."""
    keyed = [each for each in creates if each.request.key is not None]
    unasked = [(each.instance["id"], each.unasked) for each in creates if each.unasked is not None]
    deliveries = [delivery for each in creates for delivery in each.deliveries]
    attachments = [attachment for each in creates for attachment in each.attachments]
    jobs = [
        {**job, "args": orjson.Fragment(job["args"]), "due_delay": job["due_delay"].total_seconds()}
        for create in creates
        for job in create.jobs
    ]
    values = {
        "operation_ids": [each.operation["id"] for each in keyed],
        "instance_ids": [each.instance["id"] for each in keyed],
        "project_ids": [each.instance["project_id"] for each in keyed],
        "keys": [each.request.key for each in keyed],
        "fingerprints": [each.request.fingerprint for each in keyed],
        "instances_with_key": to_json([each.instance for each in keyed]),
        "instances": to_json([each.instance for each in creates if each.request.key is None]),
        "operations": to_json([each.operation for each in creates]),
        "events": to_json([event for each in creates for event in each.events]),
        "jobs": to_json(jobs),
        "audit": to_json([_audit_row(each.audit, each.instance["id"]) for each in creates if each.audit is not None]),
        "unasked": to_json([{"id": id, **question.to_json()} for id, question in unasked]),
        "deliveries": to_json(deliveries),
        "attachments": to_json(attachments),
    }
    statement = insert_statement(
        has_keys=bool(keyed), has_unasked=bool(unasked), has_deliveries=bool(deliveries), has_volumes=bool(attachments)
    )
    return statement.sql, *(values[name] for name in statement.parameters)


def _audit_row(record: AuditRecord, instance_id: UUID) -> dict[str, Any]:
    return {**record.columns(), "target": format_id("inst", instance_id), "instance_id": instance_id}
