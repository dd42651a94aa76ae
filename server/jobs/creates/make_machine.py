"""Makes a machine for an operation, candidate by candidate: at most one, whichever process dies meanwhile.

The provider has no idempotency key. So an attempt is committed before the call, its marker is part of the name, and an
attempt without a clear response is searched for by that name until the provider has shown nothing for a while. Only
then is a create sent again.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Attempt, Instance
from server.encryption import UnknownEncryptionKey
from server.enums import AttemptStatus
from server.errors import BudgetExceeded, InsufficientResource, NovitaError, ProviderTimeout, Refused
from server.instances import attempts, machines, operations
from server.instances.env import opened, with_own
from server.instances.markers import novita_name
from server.instances.placement import Candidate, Placement, Requirements
from server.instances.provider.settle import end_absent, link_created
from server.jobs.failures import Reason
from server.jobs.market.waiting import admit_again, expire, fall_asleep, match, needs_of, sleep_again
from server.jobs.registry import JobContext, growing_pause
from server.market import tape, waits
from server.market.waits import Needs, Waiting
from server.novita import models
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import OperationWork
from server.spend.refusals import QuotaExceeded

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
# What may be different later.
PASSING_CODES = attempts.NO_STOCK | {"BUDGET_EXCEEDED", "PROJECT_QUOTA_EXCEEDED"}


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
    requirements: Requirements
    waiting: Waiting | None = None  # what it does without capacity, if it may wait
    wanted: frozenset[tuple[str, str, str]] = frozenset()  # offers for which an older operation waits
    within: Sequence[str] | None = None  # regions that its token allows; None: all

    @property
    def is_awake(self) -> bool:
        """Whether it has waited, and was woken."""
        return self.waiting is not None and self.waiting.row is not None


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
    if making.waiting is not None and making.is_awake and making.waiting.is_over:
        return await _expire(making, ctx)
    if last is not None and last.status == AttemptStatus.ABSENT and _has_timed_out(making, ctx):
        return await _fail_unanswered(last, making, ctx)
    # One that has waited takes the offer that it was woken for.
    placement = Placement(()) if making.is_awake else await making.place()
    candidate = _first_untried(placement, making)
    if candidate is None and not making.is_awake:
        return await _without_candidate(placement, making, ctx)
    if instance.image_auth_id is not None and not await ctx.catalog.has_registry_auth(instance.image_auth_id):
        return await _fail_without_registry_auth(instance.image_auth_id, making, ctx)
    try:
        env = opened(instance, ctx.services.cipher)
    except UnknownEncryptionKey as error:
        return await _wait_for_key(str(error), making, ctx)
    await ctx.novita.check_create()  # while calls are suspended, each run would leave a refused attempt
    is_admitted = False
    # Before the attempt is committed: unresolved_timeout counts from that commit.
    asked_at = ctx.novita.now() - (ctx.settings.request_deadline - send_timeout(ctx)).total_seconds()
    try:
        async with ctx.write() as session:
            operation = await operations.lock_open(session, work.operation_id)
            if operation is None:
                return Done()  # deleted or cancelled meanwhile: no job would manage a machine created now
            if making.is_awake:
                candidate = await match(session, operation, instance)
            if candidate is None:
                await sleep_again(session, operation)
                return Done()
            is_admitted = operation.reserved_price_e5 is not None
            if candidate.price_per_hour_e5 > (operation.reserved_price_e5 or 0):
                await admit_again(session, operation, instance, candidate.price_per_hour_e5)
            await attempts.note_refusals(session, instance, work.operation_id, placement.refusals)
            attempt = await attempts.begin(session, instance, work.operation_id, candidate, create=making.create)
            env = with_own(env, instance, machine=await machines.next_number(session, instance))
    except (BudgetExceeded, QuotaExceeded) as refused:
        if candidate is not None and (is_admitted or making.waiting is None):
            return await _leave_out(candidate, refused, making, ctx)
        return await _sleep_blocked(making, ctx, "BUDGET" if isinstance(refused, BudgetExceeded) else "QUOTA")
    try:
        novita_id = await ctx.novita.create_instance(_request(instance, attempt, env), asked_at=asked_at)
    except NovitaError as error:
        return await _not_created(attempt, error, making, ctx)
    async with ctx.write() as session:
        await link_created(session, attempt, novita_id)
    return Done()


async def has_place(making: Making, ctx: JobContext) -> bool:
    """Whether `make_machine` has something to try now."""
    if making.is_awake:
        async with ctx.read() as session:
            return await waits.found(session, making.work.operation_id) is not None
    return _first_untried(await making.place(), making) is not None


async def _expire(making: Making, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.lock_open(session, making.work.operation_id)
        if operation is not None:
            await making.fail(session, await expire(session, operation))
    return Done()


async def _leave_out(candidate: Candidate, refused: Refused, making: Making, ctx: JobContext) -> Outcome:
    """It costs more than was admitted, and a budget or quota has too little left for that: try the next one."""
    async with ctx.write() as session:
        if await operations.lock_open(session, making.work.operation_id) is None:
            return Done()
        id = making.work.operation_id
        attempt = await attempts.begin(session, making.instance, id, candidate, create=making.create)
        await attempts.end(
            session, attempt, AttemptStatus.REJECTED, reason_code=refused.code, reason_message=str(refused)
        )
    return Again(after=timedelta(0))


async def _sleep_blocked(making: Making, ctx: JobContext, blocked_by: str) -> Outcome:
    needs = None if making.is_awake else await _needs(making, ctx)
    async with ctx.write() as session:
        operation = await operations.lock_open(session, making.work.operation_id)
        if operation is None:
            return Done()
        if making.waiting is not None and needs is not None:
            await fall_asleep(session, making.work, operation, needs, making.waiting, blocked_by=blocked_by)
        else:
            await sleep_again(session, operation, blocked_by=blocked_by)
    return Done()


async def _needs(making: Making, ctx: JobContext) -> Needs:
    return needs_of(making.requirements, await ctx.catalog.regions(), within=making.within)


async def _wait_for_key(message: str, making: Making, ctx: JobContext) -> Outcome:
    """Another worker may have the key, as while a key is introduced process by process."""
    log.error("create.encryption_key_missing", error=message)
    if _has_timed_out(making, ctx):
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
    can_wait = error.code in TRANSIENT_CODES and error.retryable
    async with ctx.write() as session:
        await attempts.end(
            session,
            attempt,
            AttemptStatus.REJECTED,
            reason_code=error.code if can_wait else code,
            reason_message=error.message,
        )
        if isinstance(error, InsufficientResource):
            await tape.mark_empty(session, tape.offer_of(attempt, gpu_count=making.instance.gpu_count))
        if not error.tries_next and not can_wait:
            await making.fail(session, Reason(error.code, error.message, error.retryable))
            return Done()
        operation = await operations.lock_open(session, making.work.operation_id)
        if making.is_awake and not can_wait and operation is not None:
            unfit = [] if isinstance(error, InsufficientResource) else [_unfit(attempt)]
            await sleep_again(session, operation, refusal=Reason(code, error.message, True), unfit=unfit)
    if isinstance(error, InsufficientResource):  # after the commit: the catalogue is read from the tape
        await ctx.catalog.forget_product(
            str(attempt.cluster_id),
            str(attempt.billing_mode),
            str(attempt.product_id),
            gpu_count=making.instance.gpu_count,
        )
    if can_wait:
        raise error
    return Done() if making.is_awake else Again(after=timedelta(0))


def _unfit(attempt: Attempt) -> str:
    return f"{attempt.region} {attempt.product_id} {attempt.billing_mode}"


def _has_timed_out(making: Making, ctx: JobContext) -> bool:
    return not making.is_awake and now() - making.since > ctx.settings.provider_max_wait


async def _fail_unanswered(last: Attempt, making: Making, ctx: JobContext) -> Outcome:
    """Every create stayed without a response and created nothing; another would not help."""
    message = last.reason_message or "The provider did not respond."
    return await _fail(making, ctx, Reason(last.reason_code or ProviderTimeout.code, message, retryable=True))


async def _without_candidate(placement: Placement, making: Making, ctx: JobContext) -> Outcome:
    """The provider refused every candidate, or there is none: wait, if that was requested, or fail."""
    tried = [attempt for attempt in making.past if attempt.marker is not None]
    message = "No region has a matching product in stock."
    if tried:
        message = "; ".join(f"{attempt.region}: {attempt.reason_message or attempt.status}" for attempt in tried[-3:])
    codes = {attempt.reason_code for attempt in tried}
    is_cuda = codes == {CUDA_VERSION_INCOMPATIBLE}  # no stock that comes back would help
    reason = Reason(CUDA_VERSION_INCOMPATIBLE if is_cuda else "NO_OPTIMAL_PRODUCT_ANY_REGION", message, not is_cuda)
    if not is_cuda and any(candidate.key in making.wanted for candidate in placement.candidates):
        reason = Reason("QUEUED_BEHIND", "Older operations of this project wait for the same offers.", retryable=True)
    needs = await _needs(making, ctx)
    async with ctx.write() as session:
        operation = await operations.lock_open(session, making.work.operation_id)
        if operation is None:
            return Done()
        await attempts.note_refusals(session, making.instance, making.work.operation_id, placement.refusals)
        if making.waiting is None or is_cuda:
            await making.fail(session, reason)
        elif making.waiting.is_over:
            await making.fail(session, await expire(session, operation))
        else:
            unfit = [_unfit(each) for each in tried if each.reason_code not in PASSING_CODES and _is_final(each)]
            await fall_asleep(session, making.work, operation, needs, making.waiting, unfit=unfit)
    return Done()


async def _fail_without_registry_auth(auth_id: str, making: Making, ctx: JobContext) -> Outcome:
    """The provider would create a machine, bill it, and fail to pull its image."""
    message = f"The provider has no registry auth {auth_id} in this account."
    return await _fail(making, ctx, Reason("REGISTRY_AUTH_NOT_FOUND", message, retryable=False))


async def _fail(making: Making, ctx: JobContext, reason: Reason) -> Outcome:
    async with ctx.write() as session:
        await making.fail(session, reason)
    return Done()


def _first_untried(placement: Placement, making: Making) -> Candidate | None:
    tried = {
        (attempt.region, attempt.product_id, attempt.billing_mode) for attempt in making.past if _is_final(attempt)
    }
    free = (each for each in placement.candidates if each.key not in tried and each.key not in making.wanted)
    return next(free, None)


def _is_final(attempt: Attempt) -> bool:
    return attempt.status == AttemptStatus.REJECTED and attempt.reason_code not in TRANSIENT_CODES


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
