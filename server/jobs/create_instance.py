"""Making an accepted instance at the provider: at most one, whatever dies on the way.

The provider has no idempotency key. So an attempt is committed before it is asked, its marker travels in the name, and
an attempt without a clear answer is looked up by that name until the provider has shown for a while that there is
nothing. Only then is anything created again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from server.clock import now
from server.db.tables import Attempt, Instance
from server.errors import AuthFailed, BalanceExhausted, InsufficientResource, NovitaError, ProviderTimeout
from server.instances import attempts, moves, operations
from server.instances.placement import Candidate, Placement, Wish, place
from server.jobs.handler import Reason, Tools, fail_operation, fail_with_the_job, growing_pause, handles
from server.jobs.provider_wait import later
from server.novita import wire
from server.queue.enqueue import enqueue
from server.queue.kinds import CreateInstance, MonitorInstance
from server.queue.outcome import Again, Done, Outcome
from server.words import AttemptStatus, Billing, InstanceStatus, OperationPhase

log = structlog.get_logger(__name__)

# After these the same candidate may be asked again: it was us, or the moment, that was refused.
PASSING = frozenset({"RATE_LIMITED", "CIRCUIT_OPEN", "NETWORK_ERROR"})
# These answer for every candidate, so there is no use in asking the next.
FINAL = (AuthFailed, BalanceExhausted)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is true before this run does anything."""

    instance: Instance
    live: Attempt | None
    doubted_for: timedelta  # how long nobody has known what came of `live`
    past: tuple[Attempt, ...]
    since: datetime


@handles(CreateInstance, failed=fail_with_the_job)
async def create_instance(work: CreateInstance, tools: Tools) -> Outcome:
    async with tools.write() as session:
        operation = await operations.enter(session, work.operation_id, OperationPhase.PLACING)
        if operation is None:
            return Done()  # superseded or cancelled: a delete looks after whatever was made
        instance = await moves.locked(session, work.instance_id)
        live = await attempts.live_of_instance(session, instance.id)
        standing = Standing(
            instance=instance,
            live=live,
            doubted_for=timedelta(0) if live is None else await attempts.age(session, live),
            past=tuple(await attempts.of_operation(session, work.operation_id)),
            since=operation.created_at,
        )
    if instance.status != InstanceStatus.CREATING:
        return Done()  # created by a run that died before it could say so; its monitor was enqueued with it
    try:
        if standing.live is not None:
            return await settle(standing.instance, standing.live, standing.doubted_for, work, tools)
        return await _ask_next(standing, work, tools)
    except NovitaError as error:
        # Placing and looking up change nothing, so they may simply be done again later.
        return later(error, since=operation.created_at, tools=tools)


async def settle(
    instance: Instance, attempt: Attempt, waited: timedelta, work: CreateInstance, tools: Tools
) -> Outcome:
    """Find out whether an attempt without an answer made something; adopt it if so."""
    found = await look_up(attempt, tools)
    if found is not None:
        await _adopt(instance, attempt, found, work, tools)
        return Done()
    patience = longest_doubt(tools)
    if waited < patience:
        return Again(after=min(patience - waited, growing_pause(waited, longest=timedelta(seconds=5))))
    async with tools.write() as session:
        await attempts.end(session, attempt, AttemptStatus.ABSENT)
    return Again(after=timedelta(0))


def longest_doubt(tools: Tools) -> timedelta:
    """How long after an attempt began something of it may still appear.

    The call may have stood in line, then have been under way for as long as one request may take; the grace begins
    after that.
    """
    return tools.settings.request_deadline + tools.settings.request_timeout + tools.settings.create_grace


async def look_up(attempt: Attempt, tools: Tools) -> str | None:
    """The provider's id of what an attempt made. The name filter is fuzzy, so the end of the name is compared; not all
    of it, because the instance may have another name by now."""
    marker = str(attempt.marker)
    page = await tools.novita.instances(name=marker)
    return next((remote.id for remote in page.items if attempts.has_marker(remote.name, marker)), None)


async def _ask_next(standing: Standing, work: CreateInstance, tools: Tools) -> Outcome:
    instance = standing.instance
    last = standing.past[-1] if standing.past else None
    if last is not None and last.status == AttemptStatus.ABSENT and _has_lasted(standing.since, tools):
        return await _never_answered(last, work, tools)
    placement = await place(tools.catalog, _wish(instance))
    candidate = _first_untried(placement, standing.past)
    if candidate is None:
        return await _give_up(placement, standing, work, tools)
    if instance.image_auth_id is not None and not await tools.catalog.has_registry_auth(instance.image_auth_id):
        return await _no_registry_auth(instance.image_auth_id, work, tools)
    # Before the attempt is committed: others count from there how long it may still be sent.
    asked_at = tools.novita.moment()
    async with tools.write() as session:
        if await operations.still_open(session, work.operation_id) is None:
            return Done()  # deleted or cancelled while we placed it: nobody would look after a machine made now
        await attempts.note_refusals(session, instance, work.operation_id, placement.refusals)
        attempt = await attempts.begin(session, instance, work.operation_id, candidate)
    try:
        novita_id = await tools.novita.create_instance(_request(instance, attempt), asked_at=asked_at)
    except NovitaError as error:
        return await _not_created(attempt, error, work, tools)
    await _adopt(instance, attempt, novita_id, work, tools)
    return Done()


async def _not_created(attempt: Attempt, error: NovitaError, work: CreateInstance, tools: Tools) -> Outcome:
    code = error.reason or error.code
    if not error.is_certain_refusal:
        log.warning("create.unknown", marker=attempt.marker, error=error.code)
        async with tools.write() as session:
            await attempts.leave_unknown(session, attempt, code=error.code, message=error.message)
        return Again(after=timedelta(milliseconds=250))
    if isinstance(error, InsufficientResource):
        await tools.catalog.forget_products()
    async with tools.write() as session:
        await attempts.end(
            session,
            attempt,
            AttemptStatus.REJECTED,
            reason_code=error.code if error.code in PASSING else code,
            reason_message=error.message,
        )
        if isinstance(error, FINAL):
            reason = Reason(error.code, error.message, error.retryable)
            await fail_operation(session, work.instance_id, work.operation_id, reason)
            return Done()
    if error.code in PASSING:
        raise error
    return Again(after=timedelta(0))


async def _adopt(instance: Instance, attempt: Attempt, novita_id: str, work: CreateInstance, tools: Tools) -> None:
    """Tie the machine to the instance. Also when the instance is being deleted: the delete needs to know of it."""
    async with tools.write() as session:
        if not await attempts.end(session, attempt, AttemptStatus.CREATED, novita_id=novita_id):
            return
        current = await moves.locked(session, instance.id)
        facts = {
            "novita_id": novita_id,
            "region": attempt.region,
            "product_id": attempt.product_id,
            "billing_mode": attempt.billing_mode,
            "price_per_hour_e5": attempt.price_per_hour_e5,
        }
        operation = await operations.enter(session, work.operation_id, OperationPhase.PROVISIONING)
        cause = moves.Cause(work.operation_id, operation.requested_by if operation else None)
        if operation is None or current.status != InstanceStatus.CREATING:
            await moves.note(session, instance.id, cause=cause, **facts)
            return
        await moves.move(session, instance.id, InstanceStatus.STARTING, cause=cause, **facts)
        await enqueue(
            session,
            MonitorInstance(instance_id=instance.id, operation_id=work.operation_id),
            project_id=instance.project_id,
            instance_id=instance.id,
            unique_key=f"monitor {work.operation_id}",
        )


def _has_lasted(since: datetime, tools: Tools) -> bool:
    return now() - since > tools.settings.provider_max_wait


async def _never_answered(last: Attempt, work: CreateInstance, tools: Tools) -> Outcome:
    """Each create was left without an answer and nothing came of it; one more would be no better."""
    message = last.reason_message or "The provider did not answer."
    async with tools.write() as session:
        reason = Reason(last.reason_code or ProviderTimeout.code, message, retryable=True)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def _give_up(placement: Placement, standing: Standing, work: CreateInstance, tools: Tools) -> Outcome:
    """Every candidate was asked and refused, or there is none."""
    asked = [attempt for attempt in standing.past if attempt.marker is not None]
    message = "No region has a fitting product free now."
    if asked:
        message = "; ".join(f"{attempt.region}: {attempt.reason_message or attempt.status}" for attempt in asked[-3:])
    async with tools.write() as session:
        await attempts.note_refusals(session, standing.instance, work.operation_id, placement.refusals)
        reason = Reason("NO_OPTIMAL_PRODUCT_ANY_REGION", message, retryable=True)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def _no_registry_auth(auth_id: str, work: CreateInstance, tools: Tools) -> Outcome:
    """Asked anyway, the provider would make a machine, bill it, and fail to pull its image."""
    message = f"The provider has no registry auth {auth_id} in this account."
    async with tools.write() as session:
        reason = Reason("REGISTRY_AUTH_NOT_FOUND", message, retryable=False)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


def _first_untried(placement: Placement, past: tuple[Attempt, ...]) -> Candidate | None:
    tried = {
        (attempt.region, attempt.product_id, attempt.billing_mode)
        for attempt in past
        if attempt.status == AttemptStatus.REJECTED and attempt.reason_code not in PASSING
    }
    for candidate in placement.candidates:
        if (candidate.region, candidate.product_id, candidate.billing_mode) not in tried:
            return candidate
    return None


def _wish(instance: Instance) -> Wish:
    return Wish(
        product_name=instance.product_name,
        gpu_count=instance.gpu_count,
        rootfs_size_gb=instance.rootfs_size_gb,
        billing=Billing(instance.billing),
        max_hourly_price_e5=instance.max_hourly_price_e5,
        regions=tuple(instance.regions),
    )


def _request(instance: Instance, attempt: Attempt) -> wire.CreateInstance:
    return wire.CreateInstance(
        name=attempts.novita_name(instance.name, str(attempt.marker)),
        product_id=str(attempt.product_id),
        gpu_count=instance.gpu_count,
        rootfs_gb=instance.rootfs_size_gb,
        image=instance.image,
        image_auth_id=instance.image_auth_id,
        cluster_id=attempt.cluster_id,
        billing_mode=attempt.billing_mode,
        command=instance.command or "",
        entrypoint=instance.entrypoint or "",
        ports=tuple(wire.Port(port["port"], port["type"]) for port in instance.ports),
        envs=tuple(wire.Env(key, value) for key, value in instance.env.items()),
    )
