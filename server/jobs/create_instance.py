"""Creates an accepted instance at the provider: at most one, whichever process dies meanwhile.

The provider has no idempotency key. So an attempt is committed before the call, its marker is part of the name, and an
attempt without a clear response is searched for by that name until the provider has shown nothing for a while. Only
then is a create sent again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from server.clock import now
from server.db.tables import Attempt, Instance
from server.encryption import UnknownEncryptionKey
from server.enums import AttemptStatus, Billing, InstanceStatus, OperationPhase, PlacementOrder
from server.errors import InsufficientResource, NovitaError, ProviderTimeout
from server.events.log_identity import restored_at
from server.instances import attempts, operations, transitions
from server.instances.env import opened
from server.instances.markers import create_part, marker_of, novita_name
from server.instances.placement import Candidate, Placement, Requirements, place
from server.instances.provider.settle import end_absent, link_created, note_doubt
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, state_of
from server.instances.provider.unlinked import Origin, unlinked_machines
from server.jobs.failures import Reason, fail_operation, fail_with_job, fail_work, retry_later
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita import models
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import CreateInstance

log = structlog.get_logger(__name__)

# After these errors the same candidate may be tried again.
TRANSIENT_CODES = frozenset(
    {
        "PROVIDER_ERROR",
        "RATE_LIMITED",
        "CIRCUIT_OPEN",
        "NETWORK_ERROR",
        "PROVIDER_SUSPENDED",
        "PROVIDER_AUTH_FAILED",
        "PAYMENT_REQUIRED",
    }
)
# A create that has not been sent by then is refused and tried again later. Shorter than REQUEST_DEADLINE, because a
# worker that takes over has to wait for this long, too, before it may call the machine absent.
SEND_TIMEOUT = timedelta(seconds=10)
# How long after a restored backup a request may be repeated whose first acceptance was lost with it.
REPEAT_WINDOW = timedelta(days=1)
KEY_MISSING = "ENCRYPTION_KEY_MISSING"
KEY_RETRY_INTERVAL = timedelta(seconds=5)
CUDA_VERSION_INCOMPATIBLE = "CUDA_VERSION_INCOMPATIBLE"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows as they were at the beginning of this run."""

    instance: Instance
    live: Attempt | None
    unresolved_for: timedelta  # how long the result of `live` has been unknown
    past: tuple[Attempt, ...]
    since: datetime
    is_after_restore: bool


@handles(CreateInstance, failed=fail_with_job)
async def create_instance(work: CreateInstance, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.PLACING)
        if operation is None:
            return Done()  # superseded or cancelled: a delete removes what was created
        instance = await transitions.lock(session, work.instance_id)
        live = await attempts.live_of_instance(session, instance.id)
        loaded = Loaded(
            instance=instance,
            live=live,
            unresolved_for=timedelta(0) if live is None else attempts.age(live),
            past=tuple(await attempts.of_operation(session, work.operation_id)),
            since=operation.created_at,
            is_after_restore=_is_after_restore(work, operation.created_at, await restored_at(session)),
        )
        if live is not None:
            await note_doubt(session, live)
    if instance.status != InstanceStatus.CREATING:
        return Done()  # an earlier run created it and enqueued its monitor, then died
    try:
        if loaded.live is not None:
            return await _resolve_attempt(loaded.live, loaded.unresolved_for, ctx)
        if loaded.is_after_restore and await _adopt_from_before(loaded, work, ctx):
            return Done()
        return await _try_next_candidate(loaded, work, ctx)
    except NovitaError as error:
        # Placing and searching change nothing, so they can be repeated. A refused search says nothing about a machine.
        return retry_later(error, since=operation.created_at, ctx=ctx, is_look=loaded.live is not None)


async def _resolve_attempt(attempt: Attempt, waited: timedelta, ctx: JobContext) -> Outcome:
    """Find out whether an attempt without a response created a machine; adopt it if so."""
    remote = await ctx.services.markers.find(str(attempt.marker))
    if remote is not None:
        async with ctx.write() as session:
            await link_created(session, attempt, remote.id)
        return Done()
    timeout = unresolved_timeout(ctx)
    if waited < timeout:
        return Again(after=min(timeout - waited, growing_pause(waited, longest=timedelta(seconds=5))))
    async with ctx.write() as session:
        await end_absent(session, attempt)
    return Again(after=timedelta(0))


def unresolved_timeout(ctx: JobContext) -> timedelta:
    """How long after the beginning of an attempt its machine may still appear.

    The call may wait for the rate limit, then take as long as one request; the grace begins after that.
    """
    return send_timeout(ctx) + ctx.settings.request_timeout + ctx.settings.create_grace


def send_timeout(ctx: JobContext) -> timedelta:
    """How long after the beginning of an attempt its call may be sent."""
    return min(ctx.settings.request_deadline, SEND_TIMEOUT)


def _is_after_restore(work: CreateInstance, created_at: datetime, restored: datetime | None) -> bool:
    """Whether this create may have been carried out in a time that a restored backup has forgotten."""
    if restored is None:
        return False
    return created_at < restored + (REPEAT_WINDOW if work.request is not None else timedelta(0))


async def _adopt_from_before(loaded: Loaded, work: CreateInstance, ctx: JobContext) -> bool:
    """Link the machine that this create made before the backup was restored, if there is one."""
    instance = loaded.instance
    known = {attempt.marker for attempt in loaded.past}
    part = create_part(instance.project_id, _create_of(work))
    found = [each for each in await ctx.services.markers.find_create(part) if marker_of(each.name) not in known]
    free = await unlinked_machines(
        ctx.services.database, [ProviderSnapshot.of(each, asked_at=now()) for each in found if _is_staying(each)]
    )
    lost = next((machine.snapshot.id for machine in free if machine.origin is Origin.LOST), None)
    remote = next((each for each in found if each.id == lost), None)
    if remote is None:
        return False
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is not None:
            marker = str(marker_of(remote.name))
            attempt = await attempts.begin_found(session, instance, work.operation_id, remote, marker)
            await link_created(session, attempt, remote.id)
    return True


def _is_staying(remote: models.RemoteInstance) -> bool:
    return state_of(remote) not in (MachineState.GOING_AWAY, MachineState.GONE)


def _create_of(work: CreateInstance) -> str:
    """What the markers of this create are derived from."""
    return work.request or str(work.operation_id)


async def _try_next_candidate(loaded: Loaded, work: CreateInstance, ctx: JobContext) -> Outcome:
    instance = loaded.instance
    last = loaded.past[-1] if loaded.past else None
    if last is not None and last.status == AttemptStatus.ABSENT and _has_timed_out(loaded.since, ctx):
        return await _fail_unanswered(last, work, ctx)
    placement = await place(ctx.catalog, _requirements(instance))
    candidate = _first_untried(placement, loaded.past)
    if candidate is None:
        return await _fail_without_candidate(placement, loaded, work, ctx)
    if instance.image_auth_id is not None and not await ctx.catalog.has_registry_auth(instance.image_auth_id):
        return await _fail_without_registry_auth(instance.image_auth_id, work, ctx)
    try:
        env = opened(instance, ctx.services.cipher)
    except UnknownEncryptionKey as error:
        return await _wait_for_key(str(error), loaded, work, ctx)
    await ctx.novita.check_create()  # while calls are suspended, each run would leave a refused attempt
    # Before the attempt is committed: unresolved_timeout counts from that commit.
    asked_at = ctx.novita.now() - (ctx.settings.request_deadline - send_timeout(ctx)).total_seconds()
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is None:
            return Done()  # deleted or cancelled meanwhile: no job would manage a machine created now
        await attempts.note_refusals(session, instance, work.operation_id, placement.refusals)
        attempt = await attempts.begin(session, instance, work.operation_id, candidate, create=_create_of(work))
    try:
        novita_id = await ctx.novita.create_instance(_request(instance, attempt, env), asked_at=asked_at)
    except NovitaError as error:
        return await _not_created(instance, attempt, error, work, ctx)
    async with ctx.write() as session:
        await link_created(session, attempt, novita_id)
    return Done()


async def _wait_for_key(message: str, loaded: Loaded, work: CreateInstance, ctx: JobContext) -> Outcome:
    """Another worker may have the key, as while a key is introduced process by process."""
    log.error("create.encryption_key_missing", error=message)
    if _has_timed_out(loaded.since, ctx):
        return await fail_work(work, ctx, Reason(KEY_MISSING, message, retryable=True))
    async with ctx.write() as session:
        await operations.record_wait(session, work.operation_id, code=KEY_MISSING, message=message)
    return Again(after=KEY_RETRY_INTERVAL)


async def _not_created(
    instance: Instance, attempt: Attempt, error: NovitaError, work: CreateInstance, ctx: JobContext
) -> Outcome:
    code = error.reason or error.code
    if not error.is_certain_refusal:
        log.warning("create.unknown", marker=attempt.marker, error=error.code)
        async with ctx.write() as session:
            await attempts.leave_unknown(session, attempt, code=error.code, message=error.message)
        return Again(after=timedelta(milliseconds=250))
    if isinstance(error, InsufficientResource):
        await ctx.catalog.forget_product(
            str(attempt.cluster_id),
            str(attempt.billing_mode),
            str(attempt.product_id),
            gpu_count=instance.gpu_count,
        )
    can_wait = error.code in TRANSIENT_CODES and error.retryable
    async with ctx.write() as session:
        await attempts.end(
            session,
            attempt,
            AttemptStatus.REJECTED,
            reason_code=error.code if can_wait else code,
            reason_message=error.message,
        )
        if not error.tries_next and not can_wait:
            reason = Reason(error.code, error.message, error.retryable)
            await fail_operation(session, work.instance_id, work.operation_id, reason)
            return Done()
    if can_wait:
        raise error
    return Again(after=timedelta(0))


def _has_timed_out(since: datetime, ctx: JobContext) -> bool:
    return now() - since > ctx.settings.provider_max_wait


async def _fail_unanswered(last: Attempt, work: CreateInstance, ctx: JobContext) -> Outcome:
    """Every create stayed without a response and created nothing; another would not help."""
    message = last.reason_message or "The provider did not respond."
    return await fail_work(work, ctx, Reason(last.reason_code or ProviderTimeout.code, message, retryable=True))


async def _fail_without_candidate(
    placement: Placement, loaded: Loaded, work: CreateInstance, ctx: JobContext
) -> Outcome:
    """The provider refused every candidate, or there is none."""
    tried = [attempt for attempt in loaded.past if attempt.marker is not None]
    message = "No region has a matching product in stock."
    if tried:
        message = "; ".join(f"{attempt.region}: {attempt.reason_message or attempt.status}" for attempt in tried[-3:])
    codes = {attempt.reason_code for attempt in tried}
    is_cuda = codes == {CUDA_VERSION_INCOMPATIBLE}  # no stock that comes back would help
    reason = Reason(CUDA_VERSION_INCOMPATIBLE if is_cuda else "NO_OPTIMAL_PRODUCT_ANY_REGION", message, not is_cuda)
    async with ctx.write() as session:
        await attempts.note_refusals(session, loaded.instance, work.operation_id, placement.refusals)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def _fail_without_registry_auth(auth_id: str, work: CreateInstance, ctx: JobContext) -> Outcome:
    """The provider would create a machine, bill it, and fail to pull its image."""
    message = f"The provider has no registry auth {auth_id} in this account."
    return await fail_work(work, ctx, Reason("REGISTRY_AUTH_NOT_FOUND", message, retryable=False))


def _first_untried(placement: Placement, past: tuple[Attempt, ...]) -> Candidate | None:
    tried = {
        (attempt.region, attempt.product_id, attempt.billing_mode)
        for attempt in past
        if attempt.status == AttemptStatus.REJECTED and attempt.reason_code not in TRANSIENT_CODES
    }
    for candidate in placement.candidates:
        if (candidate.region, candidate.product_id, candidate.billing_mode) not in tried:
            return candidate
    return None


def _requirements(instance: Instance) -> Requirements:
    return Requirements(
        product_name=instance.product_name,
        gpu_count=instance.gpu_count,
        rootfs_size_gb=instance.rootfs_size_gb,
        billing=Billing(instance.billing),
        max_hourly_price_e5=instance.max_hourly_price_e5,
        regions=tuple(instance.regions),
        order=PlacementOrder(instance.placement or PlacementOrder.REGION_ORDER),
    )


def _request(instance: Instance, attempt: Attempt, env: dict[str, str]) -> models.CreateInstance:
    return models.CreateInstance(
        name=novita_name(instance.name, str(attempt.marker)),
        product_id=str(attempt.product_id),
        gpu_count=instance.gpu_count,
        kind="gpu" if instance.gpu_count else "cpu",
        rootfs_gb=instance.rootfs_size_gb,
        image=instance.image,
        image_auth_id=instance.image_auth_id,
        cluster_id=attempt.cluster_id,
        billing_mode=attempt.billing_mode,
        command=instance.command or "",
        entrypoint=instance.entrypoint or "",
        ports=tuple(models.Port(port["port"], port["type"]) for port in instance.ports),
        tools=tuple(models.Tool(**tool) for tool in instance.tools),
        min_cuda_version=instance.min_cuda_version,
        network_id=instance.network_id,
        network_storages=tuple(models.StorageMount(each["novita_id"], each["mount_path"]) for each in instance.volumes),
        envs=tuple(models.Env(key, value) for key, value in env.items()),
    )
