"""Calls the provider at most once per operation for an existing machine, and finds out whether the call was accepted.

The provider has no idempotency key. So every run of a handler reads the machine first, and the intent to call is
committed before the call, with a fingerprint of the machine's current run. A later run that finds the intent and sees
the machine changing state, or in another run, knows that the call was accepted and continues from there.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Operation
from server.enums import OperationPhase, OperationStatus
from server.errors import AccountRefusal, InvalidStateChange, NovitaError, ProviderNotFound, ProviderTimeout
from server.instances import machines, operations, transitions
from server.instances.provider.states import MachineState, observed_fields, state_of
from server.jobs.failures import GONE, Reason, fail_work, retry_later, revert
from server.jobs.machine_run import run_fingerprint, shown_running
from server.jobs.market.waiting import provider_since
from server.jobs.registry import JobContext, growing_pause
from server.market.waits import WAITING_FOR_CAPACITY, Waiting
from server.novita.models import RemoteInstance
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import MonitorStartup, OperationWork

# How long after the provider's response a change may take to be visible. The provider also answers "invalid state
# change" to calls that it has accepted, so that answer only counts after nothing was visible for this long.
SETTLE_TIMEOUT = timedelta(seconds=10)
POLL_INTERVAL_MAX = timedelta(seconds=10)
REMOVED = "removed"  # the provider's word
FIRST_POLL_AFTER = timedelta(milliseconds=500)

# These errors mean only that the call could not be made now.
TRANSIENT_CODES = frozenset({"RATE_LIMITED", "CIRCUIT_OPEN", "NETWORK_ERROR", "PROVIDER_ERROR"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows as they were at the beginning of this run."""

    instance: Instance
    operation: Operation
    since: datetime  # from when PROVIDER_MAX_WAIT counts
    # What a clear refusal leads to, where the operation does not end with it.
    refused: "Callable[[Loaded, Reason, MachineState | None], Awaitable[Outcome]] | None" = None

    @property
    def novita_id(self) -> str:
        return str(self.instance.novita_id)

    @property
    def looked_at(self) -> datetime:
        """When the machine was last looked at since the provider was called."""
        times = (self.operation.asked_at, self.instance.observed_at, self.operation.created_at)
        return max(each for each in times if each is not None)

    @property
    def cause(self) -> transitions.Cause:
        return transitions.Cause(self.operation.id, self.operation.requested_by)


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make. `repeatable`: sending it twice does no harm."""

    send: Callable[[str], Awaitable[object]]
    repeatable: bool


async def drive(
    work: OperationWork,
    ctx: JobContext,
    *,
    phase: OperationPhase,
    is_done: Callable[[Loaded, RemoteInstance], bool],
    call: Callable[[Loaded, RemoteInstance], Call | Reason | None],
    waits_for_jobs: bool = False,
    finish: Callable[[AsyncSession, Loaded, RemoteInstance], Awaitable[object]] | None = None,
    settles_after: timedelta | None = None,
    follows_by_polls: bool = False,
    check: Callable[[Loaded], Awaitable[Reason | None]] | None = None,
    accepted: Callable[[AsyncSession, Loaded], Awaitable[object]] | None = None,
    refused: Callable[[Loaded, Reason, MachineState | None], Awaitable[Outcome]] | None = None,
    waiting: Waiting | None = None,
) -> Outcome:
    """One run of a handler that changes a machine by one provider call.

    `is_done` tells whether the machine shows that the call was accepted. `call` returns what to send in this state, a
    Reason to fail with, or None to poll again. The provider refuses calls while its own jobs for the machine run:
    `waits_for_jobs` polls until they end. `finish` writes the result; without it a monitor job follows the machine
    until it runs. With `settles_after`, an accepted call is never sent again, and counts as done after that time even
    if nothing is visible yet. With `follows_by_polls`, an accepted call is followed by polls that machines share, and
    while calls are short a page shows the machine before it: `is_done` and `call` then see what a page of the
    provider's list has, which is less than a machine's own details. `check` runs
    before the call is recorded, and returns a Reason not to send it. `accepted` writes what is true from then on.
    `refused` goes on after a clear refusal, or without a machine; without it, the operation fails. `waiting`: the
    operation may wait for capacity.
    """
    loaded = await load(work, ctx, phase)
    if loaded is None:
        return Done()
    loaded = replace(loaded, refused=refused, since=provider_since(loaded.operation, waiting, ctx))
    seen = shown_running(loaded.instance, loaded.operation, ctx) if follows_by_polls else None
    try:
        if seen is not None:
            remote = seen
        elif follows_by_polls and operations.is_accepted(loaded.operation):
            remote = await ctx.poll(
                loaded.novita_id, newer_than=loaded.looked_at, needs_addresses=False, is_urgent=True
            )
        else:
            remote = await ctx.novita.instance(loaded.novita_id)
    except NovitaError as error:
        return await on_provider_error(error, work, loaded, ctx, is_look=True)
    if loaded.instance.missing_since is not None:
        async with ctx.write() as session:
            await transitions.update(session, work.instance_id, cause=loaded.cause, missing_since=None)
    try:
        if state_of(remote) in (MachineState.GONE, MachineState.GOING_AWAY):
            await _note(work, loaded, remote, ctx)
            return await _end_gone(work, loaded, ctx)
        if is_done(loaded, remote):
            if finish is None:
                return await start_monitor(work, loaded, ctx, accepted)
            return await _succeed(work, loaded, remote, finish, ctx)
        if finish is not None and settles_after is not None and operations.is_accepted(loaded.operation):
            if _asked_for(loaded) > settles_after:
                return await _succeed(work, loaded, remote, finish, ctx)
            return Again(after=growing_pause(_asked_for(loaded), longest=POLL_INTERVAL_MAX))
        if state_of(remote) is MachineState.DOWN and remote.status != loaded.instance.novita_status:
            await _note(work, loaded, remote, ctx)  # the ledger needs its end, which another run would hide
        request = call(loaded, remote)
        if isinstance(request, Reason):
            return await _fail_seen(work, loaded, remote, ctx, request)
        if request is None:
            return await poll_again(work, loaded, remote, ctx)
        outcome = await unresolved_call(loaded, remote, work, ctx, repeatable=request.repeatable)
        if outcome is not None:
            return outcome
        if waits_for_jobs and remote.jobs:
            return await poll_again(work, loaded, remote, ctx)
        reason = None if check is None else await check(loaded)
        if reason is not None:
            return await _fail_seen(work, loaded, remote, ctx, reason)
        if not await call_provider(loaded, remote, request.send, ctx, is_sure=seen is None):
            return Done()
        return await start_monitor(work, loaded, ctx, accepted) if finish is None else Again(after=FIRST_POLL_AFTER)
    except NovitaError as error:
        return await on_provider_error(error, work, loaded, ctx)


async def _succeed(
    work: OperationWork,
    loaded: Loaded,
    remote: RemoteInstance,
    finish: Callable[[AsyncSession, Loaded, RemoteInstance], Awaitable[object]],
    ctx: JobContext,
) -> Outcome:
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is not None:
            await finish(session, loaded, remote)
            await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()


async def load(work: OperationWork, ctx: JobContext, phase: OperationPhase) -> Loaded | None:
    """None if the operation has ended, or an earlier run was killed after it had reached a later phase."""
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, phase)
        if operation is None or operation.phase != phase:
            return None
        return Loaded(await transitions.lock(session, work.instance_id), operation, since=operation.created_at)


async def call_provider(
    loaded: Loaded,
    remote: RemoteInstance,
    call: Callable[[str], Awaitable[object]],
    ctx: JobContext,
    *,
    is_sure: bool = True,
) -> bool:
    """Commit the intent and call. False if the operation was cancelled or superseded before. Unless `remote` `is_sure`
    to be the present state, a refusal because of the state leads to a look."""
    operation_id = loaded.operation.id
    async with ctx.write() as session:
        if await operations.mark_asked(session, operation_id, run=run_fingerprint(remote)) is None:
            return False
    try:
        await call(loaded.novita_id)
        async with ctx.write() as session:
            await operations.mark_accepted(session, operation_id)
            await operations.record_wait(session, operation_id)
    except InvalidStateChange as error:
        async with ctx.write() as session:
            if is_sure:
                await operations.record_refusal(session, operation_id, error.message)
            else:
                await operations.clear_asked(session, operation_id)
        raise
    except NovitaError as error:
        if error.is_certain_refusal:
            async with ctx.write() as session:
                await operations.clear_asked(session, operation_id)
        raise
    return True


def _asked_for(loaded: Loaded) -> timedelta:
    """How long ago the provider was asked."""
    return now() - (loaded.operation.asked_at or loaded.operation.created_at)


async def unresolved_call(
    loaded: Loaded, remote: RemoteInstance, work: OperationWork, ctx: JobContext, *, repeatable: bool
) -> Outcome | None:
    """The outcome while a call was made and has no visible effect; None if it may be made now.

    A repeatable call without a response is sent again after SETTLE_TIMEOUT, another one only once the first can't
    arrive any more; so is one that was accepted, because its effect may be visible late.
    """
    asked_at, answer = loaded.operation.asked_at, loaded.operation.before.get("answer")
    if asked_at is None:
        return None
    waited = now() - asked_at
    is_accepted = operations.is_accepted(loaded.operation)
    timeout = SETTLE_TIMEOUT if answer or (repeatable and not is_accepted) else unresolved_timeout(ctx)
    if waited < timeout:
        return Again(after=growing_pause(waited, longest=POLL_INTERVAL_MAX))
    if answer:
        return await _end_refused(
            work, loaded, ctx, Reason(InvalidStateChange.code, answer, retryable=True), last_seen=state_of(remote)
        )
    if now() - loaded.since > ctx.settings.provider_max_wait:
        reason = Reason(ProviderTimeout.code, "The provider gave no clear response, and the call had no effect.", True)
        return await _fail_seen(work, loaded, remote, ctx, reason)
    return None


async def start_monitor(
    work: OperationWork,
    loaded: Loaded,
    ctx: JobContext,
    accepted: Callable[[AsyncSession, Loaded], Awaitable[object]] | None = None,
) -> Outcome:
    """The call was accepted: a monitor job polls the machine until it runs."""
    async with ctx.write() as session:
        if await operations.set_phase(session, work.operation_id, OperationPhase.PROVISIONING) is None:
            return Done()
        if accepted is not None:
            await accepted(session, loaded)
        instance = await transitions.lock(session, work.instance_id)
        if instance.status_reason == WAITING_FOR_CAPACITY:
            instance = await transitions.update(session, work.instance_id, cause=loaded.cause, status_reason=None)
        if instance.run_accepted_at is None:  # else a restart or a migration, which go on with the run
            await transitions.write_silently(session, instance, run_accepted_at=now())
        await machines.enqueue_monitor(
            session, MonitorStartup(work.instance_id, work.operation_id), project_id=loaded.instance.project_id
        )
    return Done()


async def poll_again(work: OperationWork, loaded: Loaded, remote: RemoteInstance, ctx: JobContext) -> Outcome:
    """The machine is changing state, or can't be called in its state: poll again, until `provider_max_wait`."""
    waited = now() - loaded.since
    if waited > ctx.settings.provider_max_wait:
        message = f"The instance was still {remote.status} at the provider after {waited.total_seconds():.0f} s."
        return await _fail_seen(work, loaded, remote, ctx, Reason("PROVIDER_BUSY", message, retryable=True))
    if not await _note(work, loaded, remote, ctx):
        return Done()
    return Again(after=growing_pause(waited, longest=POLL_INTERVAL_MAX))


async def _note(work: OperationWork, loaded: Loaded, remote: RemoteInstance, ctx: JobContext) -> bool:
    """Write what the provider shows; False if the operation has ended."""
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is None:
            return False
        await operations.record_wait(session, work.operation_id)
        await transitions.update(
            session, work.instance_id, cause=loaded.cause, observed_at=now(), **observed_fields(remote)
        )
    return True


async def _fail_seen(
    work: OperationWork, loaded: Loaded, remote: RemoteInstance, ctx: JobContext, reason: Reason
) -> Outcome:
    """The same as `fail_and_revert` after a look, which the ledger needs: it may be the last one for a while."""
    await _note(work, loaded, remote, ctx)
    return await fail_and_revert(work, ctx, reason, last_seen=state_of(remote))


async def on_provider_error(
    error: NovitaError, work: OperationWork, loaded: Loaded, ctx: JobContext, *, is_look: bool = False
) -> Outcome:
    """The outcome after a call to the provider failed."""
    if isinstance(error, ProviderNotFound):
        if await ctx.services.absences.confirm(work.instance_id, loaded.novita_id):
            return await _end_gone(work, loaded, ctx)
        is_look = True  # until its absence is confirmed, it says nothing about the machine
    if isinstance(error, InvalidStateChange) and not is_look:
        return Again(after=growing_pause(timedelta(0), longest=POLL_INTERVAL_MAX))  # poll before it counts
    if is_look or error.code in TRANSIENT_CODES or isinstance(error, AccountRefusal):
        outcome = retry_later(error, since=loaded.since, ctx=ctx, is_look=is_look)
        async with ctx.write() as session:
            await operations.record_wait(session, work.operation_id, code=error.code, message=error.message)
        return outcome
    reason = Reason(error.code, error.message, error.retryable)
    if not error.is_certain_refusal:
        return await fail_and_revert(work, ctx, reason, last_seen=None)
    return await _end_refused(work, loaded, ctx, reason, last_seen=None)


async def _end_refused(
    work: OperationWork, loaded: Loaded, ctx: JobContext, reason: Reason, *, last_seen: MachineState | None
) -> Outcome:
    if loaded.refused is None:
        return await fail_and_revert(work, ctx, reason, last_seen=last_seen)
    return await loaded.refused(loaded, reason, last_seen)


async def _end_gone(work: OperationWork, loaded: Loaded, ctx: JobContext) -> Outcome:
    if loaded.refused is None:
        return await fail_gone(work, ctx)
    async with ctx.write() as session:
        await transitions.update(session, work.instance_id, cause=loaded.cause, novita_status=REMOVED)
    return await loaded.refused(loaded, GONE, MachineState.GONE)


async def fail_gone(work: OperationWork, ctx: JobContext) -> Outcome:
    return await fail_work(work, ctx, GONE)


async def fail_and_revert(
    work: OperationWork, ctx: JobContext, reason: Reason, *, last_seen: MachineState | None
) -> Outcome:
    """Fail the operation and put the instance back into the status that is true of it."""
    async with ctx.write() as session:
        await revert(session, work, reason, last_seen=last_seen)
    return Done()


def unresolved_timeout(ctx: JobContext) -> timedelta:
    """How long after a call was recorded its effect may still appear: see `create_instance`."""
    return ctx.settings.request_deadline + ctx.settings.request_timeout + ctx.settings.create_grace
