"""Makes a machine for an operation, candidate by candidate: at most one, whichever process dies meanwhile.

The provider has no idempotency key. So an attempt is committed before the call, its marker is part of the name, and an
attempt without a clear response is searched for by that name until the provider has shown nothing for a while. Only
then is a create sent again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Attempt, Instance
from server.encryption import UnknownEncryptionKey
from server.enums import AttemptStatus
from server.errors import InsufficientResource, NovitaError, ProviderTimeout
from server.instances import attempts, operations
from server.instances.env import opened
from server.instances.markers import novita_name
from server.instances.placement import Candidate, Placement
from server.instances.provider.settle import end_absent, link_created
from server.jobs.failures import Reason
from server.jobs.registry import JobContext, growing_pause
from server.novita import models
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import OperationWork

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
KEY_MISSING = "ENCRYPTION_KEY_MISSING"
KEY_RETRY_INTERVAL = timedelta(seconds=5)
CUDA_VERSION_INCOMPATIBLE = "CUDA_VERSION_INCOMPATIBLE"


@dataclass(frozen=True, slots=True)
class Making:
    """What to make for which operation, with the rows as they were at the beginning of this run."""

    work: OperationWork
    instance: Instance
    past: tuple[Attempt, ...]  # of the operation
    since: datetime
    create: str  # what the markers are derived from
    place: Callable[[], Awaitable[Placement]]
    fail: Callable[[AsyncSession, Reason], Awaitable[None]]  # ends the operation, which has made no machine


async def resolve_attempt(attempt: Attempt, waited: timedelta, ctx: JobContext) -> Outcome:
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


async def make_machine(making: Making, ctx: JobContext) -> Outcome:
    """Try the next candidate. Done: a machine is linked, or the operation has ended."""
    instance, work = making.instance, making.work
    last = making.past[-1] if making.past else None
    if last is not None and last.status == AttemptStatus.ABSENT and _has_timed_out(making.since, ctx):
        return await _fail_unanswered(last, making, ctx)
    placement = await making.place()
    candidate = _first_untried(placement, making.past)
    if candidate is None:
        return await _fail_without_candidate(placement, making, ctx)
    if instance.image_auth_id is not None and not await ctx.catalog.has_registry_auth(instance.image_auth_id):
        return await _fail_without_registry_auth(instance.image_auth_id, making, ctx)
    try:
        env = opened(instance, ctx.services.cipher)
    except UnknownEncryptionKey as error:
        return await _wait_for_key(str(error), making, ctx)
    await ctx.novita.check_create()  # while calls are suspended, each run would leave a refused attempt
    # Before the attempt is committed: unresolved_timeout counts from that commit.
    asked_at = ctx.novita.now() - (ctx.settings.request_deadline - send_timeout(ctx)).total_seconds()
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is None:
            return Done()  # deleted or cancelled meanwhile: no job would manage a machine created now
        await attempts.note_refusals(session, instance, work.operation_id, placement.refusals)
        attempt = await attempts.begin(session, instance, work.operation_id, candidate, create=making.create)
    try:
        novita_id = await ctx.novita.create_instance(_request(instance, attempt, env), asked_at=asked_at)
    except NovitaError as error:
        return await _not_created(attempt, error, making, ctx)
    async with ctx.write() as session:
        await link_created(session, attempt, novita_id)
    return Done()


async def _wait_for_key(message: str, making: Making, ctx: JobContext) -> Outcome:
    """Another worker may have the key, as while a key is introduced process by process."""
    log.error("create.encryption_key_missing", error=message)
    if _has_timed_out(making.since, ctx):
        return await _fail(making, ctx, Reason(KEY_MISSING, message, retryable=True))
    async with ctx.write() as session:
        await operations.record_wait(session, making.work.operation_id, code=KEY_MISSING, message=message)
    return Again(after=KEY_RETRY_INTERVAL)


async def _not_created(attempt: Attempt, error: NovitaError, making: Making, ctx: JobContext) -> Outcome:
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
            gpu_count=making.instance.gpu_count,
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
            await making.fail(session, Reason(error.code, error.message, error.retryable))
            return Done()
    if can_wait:
        raise error
    return Again(after=timedelta(0))


def _has_timed_out(since: datetime, ctx: JobContext) -> bool:
    return now() - since > ctx.settings.provider_max_wait


async def _fail_unanswered(last: Attempt, making: Making, ctx: JobContext) -> Outcome:
    """Every create stayed without a response and created nothing; another would not help."""
    message = last.reason_message or "The provider did not respond."
    return await _fail(making, ctx, Reason(last.reason_code or ProviderTimeout.code, message, retryable=True))


async def _fail_without_candidate(placement: Placement, making: Making, ctx: JobContext) -> Outcome:
    """The provider refused every candidate, or there is none."""
    tried = [attempt for attempt in making.past if attempt.marker is not None]
    message = "No region has a matching product in stock."
    if tried:
        message = "; ".join(f"{attempt.region}: {attempt.reason_message or attempt.status}" for attempt in tried[-3:])
    codes = {attempt.reason_code for attempt in tried}
    is_cuda = codes == {CUDA_VERSION_INCOMPATIBLE}  # no stock that comes back would help
    reason = Reason(CUDA_VERSION_INCOMPATIBLE if is_cuda else "NO_OPTIMAL_PRODUCT_ANY_REGION", message, not is_cuda)
    async with ctx.write() as session:
        await attempts.note_refusals(session, making.instance, making.work.operation_id, placement.refusals)
        await making.fail(session, reason)
    return Done()


async def _fail_without_registry_auth(auth_id: str, making: Making, ctx: JobContext) -> Outcome:
    """The provider would create a machine, bill it, and fail to pull its image."""
    message = f"The provider has no registry auth {auth_id} in this account."
    return await _fail(making, ctx, Reason("REGISTRY_AUTH_NOT_FOUND", message, retryable=False))


async def _fail(making: Making, ctx: JobContext, reason: Reason) -> Outcome:
    async with ctx.write() as session:
        await making.fail(session, reason)
    return Done()


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
