"""Accepting a create: everything is checked and looked up first, then four rows are written in one transaction."""

from dataclasses import asdict
from uuid import UUID

import asyncpg
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import Instance, Operation
from server.errors import Invalid, KeyReused, Problem
from server.instances import moves, operations
from server.instances.acceptance import accept, look
from server.instances.choice import Defaults, choose, refuse_hopeless, region_order
from server.instances.drafts import CreateDraft, Port, target_problems
from server.instances.idempotency import Accepted, Asked, KeyTaken, find, once
from server.queue.enqueue import enqueue
from server.queue.kinds import CreateInstance
from server.words import OperationKind

__all__ = ["NAME_INDEX", "Accepted", "Defaults", "create_instance", "name_taken"]

NAME_INDEX = "instance_name_is_unique_among_the_living"


async def create_instance(
    database: Database, catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults
) -> Accepted:
    """Accept a request for an instance; the worker does the creating.

    Nothing is written before everything is known to be right, so a refusal leaves nothing behind. The idempotency key
    is the first row of the transaction: of many calls with one key, the others wait there for the first to commit.
    """
    draft.check(defaults.inside)
    asked = asked_of(draft, by)
    known = await find(database, asked)
    if known is not None:
        return known
    found = await look(database, (by.project_id, draft.name, draft.product_name, region_order(draft, defaults)[0]))
    if found["is_taken"]:
        # Before the provider is asked anything. The unique index is what holds when two callers come at once; and the
        # one who has the name now may have come with our own key a moment ago.
        known = await find(database, asked)
        if known is None:
            raise name_taken()
        return known
    instance = await _prepared(catalog, draft, by=by, defaults=defaults)
    instance.estimated_ready_at = now() + (found["takes"] or defaults.estimated_ready_time)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        return Accepted(instance, await _write(session, instance, operation_id, by=by))

    try:
        if instance.webhook_url is None:
            return await _at_once(database, instance, asked)
        return await once(database, asked, write)  # there are deliveries to be written as well
    except (IntegrityError, asyncpg.UniqueViolationError) as error:
        if NAME_INDEX in str(error):
            raise name_taken() from None
        raise


async def _at_once(database: Database, instance: Instance, asked: Asked) -> Accepted:
    try:
        return Accepted(instance, await accept(database, instance, asked))
    except KeyTaken:
        known = await find(database, asked)
        if known is None:
            raise KeyReused from None
        return known


def asked_of(draft: CreateDraft, by: Caller) -> Asked:
    """The same for the same input, whatever the key."""
    fields = asdict(draft)
    del fields["idempotency_key"], fields["unreadable"]
    return Asked.of(by, draft.idempotency_key, "createInstance", fields)


def name_taken() -> Invalid:
    message = "Another instance has this name; choose another or delete that one first."
    return Invalid([Problem("INSTANCE_NAME_TAKEN", message, ("input", "name"))])


async def _prepared(catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults) -> Instance:
    choice = await choose(catalog, draft, defaults=defaults)
    refuse_hopeless(choice)
    template = choice.template
    env = {variable.key: variable.value for variable in template.envs} if template else {}
    ports = [Port(port.port, port.type) for port in template.ports] if template else []
    exposed = ports if draft.ports is None else list(draft.ports)
    path = ("input", "healthCheck", "targetPort")
    problems = list(target_problems(draft.health_check, {port.port for port in exposed}, path))
    if problems:
        raise Invalid(problems)
    return Instance(
        id=new_id(),
        project_id=by.project_id,
        name=draft.name,
        product_name=draft.product_name,
        gpu_count=draft.gpu_count,
        rootfs_size_gb=choice.wish.rootfs_size_gb,
        billing=draft.billing,
        max_hourly_price_e5=draft.max_hourly_price_e5,
        regions=list(choice.wish.regions),
        template_id=draft.template_id,
        image=template.image if template else str(draft.image).strip(),
        image_auth_id=draft.registry_auth_id or (template.image_auth_id if template else None),
        command=draft.command if draft.command is not None else (template.start_command if template else None),
        entrypoint=template.entrypoint if template else None,
        env={**env, **(draft.env or {})},
        ports=[asdict(port) for port in exposed],
        labels=dict(draft.labels),
        health_check=draft.health_check.stored(),
        webhook_url=draft.webhook_url,
        endpoints=[],
    )


async def _write(session: AsyncSession, instance: Instance, operation_id: UUID, *, by: Caller) -> Operation:
    await moves.begin(session, instance, cause=moves.Cause(operation_id, by.token_id))
    operation = await operations.begin(
        session,
        instance,
        OperationKind.CREATE,
        by=by.token_id,
        id=operation_id,
        estimated_ready_at=instance.estimated_ready_at,
    )
    await enqueue(
        session,
        CreateInstance(instance_id=instance.id, operation_id=operation.id),
        project_id=by.project_id,
        instance_id=instance.id,
    )
    return operation
