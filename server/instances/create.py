"""Accepting a create: everything is checked and looked up first, then four rows are written in one transaction."""

import hashlib
from dataclasses import asdict, dataclass
from datetime import timedelta

import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import IdempotencyKey, Instance, Operation
from server.errors import Invalid, KeyReused, NoCapacity, Problem, ProviderNotFound, Refused
from server.instances import moves, operations
from server.instances.drafts import CreateDraft, Port, is_possible_port
from server.instances.placement import Wish, place
from server.novita.wire import Template, find_cluster
from server.queue.enqueue import enqueue
from server.queue.kinds import CreateInstance
from server.words import InstanceStatus, OperationKind

DEFAULT_ROOTFS_GB = 60
NAME_INDEX = "instance_name_is_unique_among_the_living"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the caller gets back."""

    instance: Instance
    operation: Operation
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server decides where the caller is silent."""

    regions: tuple[str, ...]
    estimated_ready_time: timedelta


async def create_instance(
    database: Database, catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults
) -> Accepted:
    """Accept a request for an instance; the worker does the creating.

    Nothing is written before everything is known to be right, so a refusal leaves nothing behind. The idempotency key
    is the first row of the transaction: of many calls with one key, the others wait there for the first to commit.
    """
    draft.check()
    fingerprint = fingerprint_of(draft)
    async with database.read() as session:
        known = await _replay(session, draft, fingerprint, by)
        if known is not None:
            return known
        await _refuse_taken_name(session, draft.name, by)
    instance = await _prepared(catalog, draft, by=by, defaults=defaults)
    try:
        async with database.write() as session:
            operation = await _write(session, instance, draft.idempotency_key, fingerprint, by=by)
    except IntegrityError as error:
        if NAME_INDEX in str(error.orig):
            raise _name_taken() from None
        raise
    except _KeyTaken:
        async with database.read() as session:
            known = await _replay(session, draft, fingerprint, by)
        if known is None:
            raise KeyReused from None
        return known
    return Accepted(instance, operation)


def fingerprint_of(draft: CreateDraft) -> bytes:
    """The same for the same input, whatever the key."""
    fields = asdict(draft)
    del fields["idempotency_key"], fields["unreadable"]
    return hashlib.sha256(b"create" + orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).digest()


class _KeyTaken(Exception):
    """Another call with the same key committed first."""


async def _replay(session: AsyncSession, draft: CreateDraft, fingerprint: bytes, by: Caller) -> Accepted | None:
    if draft.idempotency_key is None:
        return None
    found = await session.execute(
        select(IdempotencyKey, Operation, Instance)
        .join(Operation, Operation.id == IdempotencyKey.operation_id)
        .join(Instance, Instance.id == Operation.instance_id)
        .where(IdempotencyKey.project_id == by.project_id, IdempotencyKey.key == draft.idempotency_key)
    )
    row = found.first()
    if row is None:
        return None
    key, operation, instance = row
    if key.fingerprint != fingerprint:
        raise KeyReused
    return Accepted(instance, operation, replayed=True)


async def _refuse_taken_name(session: AsyncSession, name: str, by: Caller) -> None:
    """Before the provider is asked anything. The unique index is what holds when two callers come at once."""
    taken = await session.execute(
        select(Instance.id).where(
            Instance.project_id == by.project_id,
            Instance.name == name,
            Instance.status != InstanceStatus.DELETED,
        )
    )
    if taken.first() is not None:
        raise _name_taken()


def _name_taken() -> Invalid:
    message = "Another instance has this name; choose another or delete that one first."
    return Invalid([Problem("INSTANCE_NAME_TAKEN", message, ("input", "name"))])


async def _prepared(catalog: Catalog, draft: CreateDraft, *, by: Caller, defaults: Defaults) -> Instance:
    template = await _template(catalog, draft.template_id) if draft.template_id is not None else None
    rootfs = draft.rootfs_size_gb or max(DEFAULT_ROOTFS_GB, (template.rootfs_gb or 0) if template else 0)
    await _refuse_unknown_regions(catalog, draft)
    regions = _region_order(draft, defaults)
    wish = Wish(
        product_name=draft.product_name,
        gpu_count=draft.gpu_count,
        rootfs_size_gb=rootfs,
        billing=draft.billing,
        max_hourly_price_e5=draft.max_hourly_price_e5,
        regions=regions,
    )
    await refuse_hopeless(catalog, wish)
    env = {variable.key: variable.value for variable in template.envs} if template else {}
    ports = [Port(port.port, port.type) for port in template.ports] if template else []
    return Instance(
        id=new_id(),
        project_id=by.project_id,
        name=draft.name,
        product_name=draft.product_name,
        gpu_count=draft.gpu_count,
        rootfs_size_gb=rootfs,
        billing=draft.billing,
        max_hourly_price_e5=draft.max_hourly_price_e5,
        regions=list(regions),
        template_id=draft.template_id,
        image=template.image if template else str(draft.image).strip(),
        image_auth_id=template.image_auth_id if template else None,
        command=draft.command if draft.command is not None else (template.start_command if template else None),
        entrypoint=template.entrypoint if template else None,
        env={**env, **(draft.env or {})},
        ports=[asdict(port) for port in (ports if draft.ports is None else draft.ports)],
        labels=dict(draft.labels),
        health_check={},
        endpoints=[],
        estimated_ready_at=now() + defaults.estimated_ready_time,
    )


async def _template(catalog: Catalog, template_id: str) -> Template:
    """The template, fit to be run."""
    path = ("input", "templateId")
    try:
        template = await catalog.template(template_id)
    except ProviderNotFound:
        raise Invalid([Problem("TEMPLATE_NOT_FOUND", f"There is no template {template_id}.", path)]) from None
    problems: list[Problem] = []
    if not template.image.strip():
        problems.append(Problem("TEMPLATE_INVALID", f"Template {template_id} has no image.", path))
    if not all(is_possible_port(Port(port.port, port.type)) for port in template.ports):
        problems.append(Problem("TEMPLATE_INVALID", f"Template {template_id} has malformed ports.", path))
    if problems:
        raise Invalid(problems)
    return template


async def _refuse_unknown_regions(catalog: Catalog, draft: CreateDraft) -> None:
    """Only those that the caller named: our own list may name regions that the provider has closed."""
    named = [(("input", "region"), draft.region)] if draft.region is not None else []
    named += [(("input", "regions", str(index)), region) for index, region in enumerate(draft.regions)]
    if not named:
        return
    clusters = await catalog.regions()
    problems = [
        Problem("INVALID_REGION", f"The provider has no region {region}.", path)
        for path, region in named
        if find_cluster(clusters, region) is None
    ]
    if problems:
        raise Invalid(problems)


def _region_order(draft: CreateDraft, defaults: Defaults) -> tuple[str, ...]:
    order = [draft.region] if draft.region is not None else []
    order.extend(draft.regions or defaults.regions)
    return tuple(dict.fromkeys(region.strip() for region in order))


async def refuse_hopeless(catalog: Catalog, wish: Wish) -> None:
    """Refuse now what no region could serve now. Stock moves, so the worker looks again."""
    placement = await place(catalog, wish)
    if placement.candidates:
        return
    codes = {refusal.code for refusal in placement.refusals}
    if codes == {"INVALID_REGION"}:
        raise Refused("INVALID_REGION", f"The provider knows none of {', '.join(wish.regions)}.", ("input", "region"))
    if codes <= {"PRODUCT_NOT_FOUND", "INVALID_REGION"}:
        message = f"No region offers {wish.product_name}."
        raise Refused("PRODUCT_NOT_FOUND", message, ("input", "productName"))
    if "PRICE_ABOVE_MAX" in codes and codes <= {"PRICE_ABOVE_MAX", "PRODUCT_NOT_FOUND", "INVALID_REGION"}:
        raise NoCapacity("PRICE_ABOVE_MAX", "Every offer costs more than you allow.", placement.refusals)
    raise NoCapacity("NO_OPTIMAL_PRODUCT_ANY_REGION", "No region has a fitting product free now.", placement.refusals)


async def _write(
    session: AsyncSession, instance: Instance, key: str | None, fingerprint: bytes, *, by: Caller
) -> Operation:
    operation_id = new_id()
    if key is not None:
        taken = await session.execute(
            insert(IdempotencyKey)
            .values(project_id=by.project_id, key=key, fingerprint=fingerprint, operation_id=operation_id)
            .on_conflict_do_nothing()
            .returning(IdempotencyKey.key)
        )
        if taken.first() is None:
            raise _KeyTaken
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
