"""Saves an exited instance as an image by one job of the provider, and follows that job to its end.

The provider has no idempotency key: a second call would push the image twice. So the jobs that the machine has before
the call are recorded with it, and after a lost response the new job is searched for before anything is sent again.
"""

from datetime import timedelta

from server.clock import now
from server.enums import OperationPhase, OperationStatus
from server.errors import InvalidStateChange, NovitaError, ProviderTimeout
from server.instances import operations
from server.instances.provider.provider_jobs import SAVE_IMAGE, read_job, read_jobs
from server.instances.provider.states import MachineState, state_of
from server.jobs.failures import Reason, revert_with_job
from server.jobs.provider_call import (
    POLL_INTERVAL_MAX,
    SETTLE_TIMEOUT,
    Loaded,
    fail_and_revert,
    load,
    on_provider_error,
    poll_again,
    unresolved_timeout,
)
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita.models import Job
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import SaveImage

# How long the provider may take to push an image: the largest ones have hundreds of GB.
SAVE_TIMEOUT = timedelta(hours=24)
# A job that was begun this long before the operation is not its job. Clocks may differ.
LOOK_BACK = timedelta(days=1)


@handles(SaveImage, failed=revert_with_job)
async def save_image(work: SaveImage, ctx: JobContext) -> Outcome:
    loaded = await load(work, ctx, OperationPhase.UPDATING)
    if loaded is None:
        return Done()
    job_id = loaded.operation.before.get("job_id")
    is_asked = loaded.operation.asked_at is not None
    try:
        if job_id is not None:
            return await _follow(job_id, loaded, work, ctx)
        outcome = await (_resolve if is_asked else _prepare)(loaded, work, ctx)
        if outcome is not None:
            return outcome
        known = [job.id for job in await _jobs(loaded, ctx)]
    except NovitaError as error:
        return await on_provider_error(error, work, loaded, ctx, is_look=True)
    return await _send(known, loaded, work, ctx)


async def _prepare(loaded: Loaded, work: SaveImage, ctx: JobContext) -> Outcome | None:
    """None if the provider may be called now."""
    remote = await ctx.novita.instance(loaded.novita_id)
    state = state_of(remote)
    if state in (MachineState.UP, MachineState.COMING_UP):
        reason = Reason("INSTANCE_NOT_EXITED", f"The instance is {remote.status} at the provider.", retryable=True)
        return await fail_and_revert(work, ctx, reason, last_seen=state)
    if state is not MachineState.DOWN or remote.jobs:
        return await poll_again(work, loaded, remote, ctx)
    auth_id = loaded.operation.wanted.get("registry_auth_id")
    if auth_id is not None and not await ctx.catalog.has_registry_auth(auth_id):
        reason = Reason("REGISTRY_AUTH_NOT_FOUND", f"The provider has no registry auth {auth_id}.", retryable=False)
        return await fail_and_revert(work, ctx, reason, last_seen=state)
    return None


async def _send(known: list[str], loaded: Loaded, work: SaveImage, ctx: JobContext) -> Outcome:
    wanted = loaded.operation.wanted
    async with ctx.write() as session:
        if await operations.mark_asked(session, work.operation_id, run=None, known_jobs=known) is None:
            return Done()  # cancelled or superseded
    try:
        job_id = await ctx.novita.save_image(
            loaded.novita_id, image=wanted["saved_image"], registry_auth_id=wanted.get("registry_auth_id")
        )
    except InvalidStateChange as error:
        async with ctx.write() as session:
            await operations.record_refusal(session, work.operation_id, error.message)
        return Again(after=growing_pause(timedelta(0), longest=POLL_INTERVAL_MAX))  # look before it counts
    except NovitaError as error:
        if error.is_certain_refusal:
            async with ctx.write() as session:
                await operations.clear_asked(session, work.operation_id)
        return await on_provider_error(error, work, loaded, ctx)
    await _record(job_id, work, ctx)
    return Again(after=growing_pause(timedelta(0), longest=POLL_INTERVAL_MAX))


async def _resolve(loaded: Loaded, work: SaveImage, ctx: JobContext) -> Outcome | None:
    """After a call without a clear response: the job that it began, or None once the call can't arrive any more."""
    known = set(loaded.operation.before.get("known_jobs", ()))
    new = [job for job in await _jobs(loaded, ctx) if job.id not in known]
    if new:
        await _record(new[-1].id, work, ctx)
        return Again(after=timedelta(0))
    answer = loaded.operation.before.get("answer")
    waited = now() - (loaded.operation.asked_at or loaded.operation.created_at)
    if waited < (SETTLE_TIMEOUT if answer else unresolved_timeout(ctx)):
        return Again(after=growing_pause(waited, longest=POLL_INTERVAL_MAX))
    if answer:
        reason = Reason(InvalidStateChange.code, answer, retryable=True)
        return await fail_and_revert(work, ctx, reason, last_seen=None)
    if now() - loaded.operation.created_at > ctx.settings.provider_max_wait:
        reason = Reason(ProviderTimeout.code, "The provider gave no clear response, and began no job.", retryable=True)
        return await fail_and_revert(work, ctx, reason, last_seen=None)
    return await _prepare(loaded, work, ctx)


async def _follow(job_id: str, loaded: Loaded, work: SaveImage, ctx: JobContext) -> Outcome:
    job = await read_job(ctx.novita, job_id)
    waited = now() - (loaded.operation.asked_at or loaded.operation.created_at)
    if job is None:
        await ctx.novita.instance(loaded.novita_id)  # raises if the machine is gone, and its job with it
    elif job.state == "success":
        async with ctx.write() as session:
            await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
        return Done()
    elif job.state in ("fail", "break"):
        return await fail_and_revert(work, ctx, _failure(job), last_seen=None)
    if waited > SAVE_TIMEOUT:
        message = f"The provider's job {job_id} has not ended after {waited.total_seconds():.0f} s."
        return await fail_and_revert(work, ctx, Reason("PROVIDER_BUSY", message, retryable=True), last_seen=None)
    async with ctx.write() as session:
        await operations.record_wait(session, work.operation_id)
    return Again(after=growing_pause(waited, longest=POLL_INTERVAL_MAX))


def _failure(job: Job) -> Reason:
    if job.state == "break":
        return Reason("IMAGE_SAVE_INTERRUPTED", "The provider's job was interrupted.", retryable=True)
    return Reason("IMAGE_NOT_SAVED", job.error or "The provider gives no reason.", retryable=False)


async def _jobs(loaded: Loaded, ctx: JobContext) -> list[Job]:
    """The jobs that save images of this machine, newest first."""
    since = loaded.operation.created_at - LOOK_BACK
    found = await read_jobs(ctx.novita, type=SAVE_IMAGE, since=since)
    return [job for job in found if job.instance_id == loaded.novita_id]


async def _record(job_id: str, work: SaveImage, ctx: JobContext) -> None:
    async with ctx.write() as session:
        await operations.mark_accepted(session, work.operation_id, job_id=job_id)
        await operations.record_wait(session, work.operation_id)
