"""Deletes an instance at the provider; the operation ends when it is gone there.

It has no other end: an operation that gave up would leave a machine that is billed and that its owner believes deleted.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from server.billing import BILLED_WORDS
from server.clock import now
from server.db.tables import Attempt, Instance, Operation
from server.enums import InstanceStatus, OperationPhase, OperationStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import attempts, machines, operations, transitions
from server.instances.provider.settle import end_absent, link_created, note_doubt
from server.instances.provider.states import STATES, MachineState, observed_columns, state_of, times_of
from server.instances.queries.operations import was_left_open
from server.jobs.creates.make_machine import unresolved_timeout
from server.jobs.failures import wait_for_provider
from server.jobs.machine_run import accepted_by, look_before_removal
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita.models import RemoteInstance
from server.queue.enqueue import enqueue
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import DeleteInstance
from server.spend.machine_times import NO_TIMES, MachineTimes

# The provider's words for a machine that is about to cost something.
MAY_BE_PAID_UNSEEN = ("pending", "toCreate", "creating", "toStart")
PAUSE_MAX = timedelta(minutes=2)
# The intent to send a delete is written again if it is older, after a look or a wait for the rate limit.
INTENT_AGE_MAX = timedelta(milliseconds=500)
# After the job itself has failed, which is a fault of ours.
NEXT_JOB_AFTER = timedelta(minutes=5)


async def keep_deleting(session: AsyncSession, work: DeleteInstance, failure: Failure) -> None:
    """For `failed`: the machine may exist, so another job goes on."""
    operation = await operations.lock_open(session, work.operation_id)
    if operation is None:
        return
    await operations.record_wait(session, work.operation_id, code=failure.code, message=failure.message)
    await enqueue(
        session,
        work,
        project_id=operation.project_id,
        instance_id=work.instance_id,
        after=NEXT_JOB_AFTER,
    )


@dataclass(slots=True)
class Intent:
    """When it was written that the delete is about to be sent, and when it was sent; when an earlier one was sent that
    may have been done; and whether the provider was called by an operation that did not see what came of it."""

    written_at: datetime
    earlier_at: datetime | None
    has_open_end: bool
    sent_at: datetime | None = None


@handles(DeleteInstance, failed=keep_deleting)
async def delete_instance(work: DeleteInstance, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.DELETING)
        if operation is None:
            return Done()
        instance = await transitions.lock(session, work.instance_id)
        live = await attempts.live_of_instance(session, work.instance_id)
        unresolved_for = timedelta(0) if live is None else attempts.age(live)
        intent = Intent(now(), operations.sent_at(operation), await was_left_open(session, work.instance_id))
        if live is not None:
            await note_doubt(session, live)
        elif instance.novita_id is not None:
            # Before the call: whatever becomes of this run, the next one knows since when the machine may be gone.
            await operations.note_sent(session, work.operation_id, intent.written_at, again=False)
    since = operation.created_at
    try:
        if live is not None:
            return await _resolve_attempt(live, unresolved_for, ctx)
        if instance.novita_id is not None and not await _delete_and_poll(
            instance.novita_id, instance, operation, intent, ctx
        ):
            return Again(after=growing_pause(now() - since, longest=timedelta(seconds=10)))
    except NovitaError as error:
        async with ctx.write() as session:
            await operations.record_wait(session, work.operation_id, code=error.code, message=error.message)
        return wait_for_provider(error, now() - since, longest=PAUSE_MAX)
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is not None:
            cause = transitions.Cause(work.operation_id, operation.requested_by)
            instance = await transitions.lock(session, work.instance_id)
            times = _times(operation, missing_since=instance.missing_since)
            if instance.novita_status is None and operations.is_accepted(operation):
                times = replace(times, started_at=await machines.began_at(session, instance))
            await transitions.transition(session, work.instance_id, InstanceStatus.DELETED, cause=cause, times=times)
            await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()


async def _delete_and_poll(
    novita_id: str, instance: Instance, operation: Operation, intent: Intent, ctx: JobContext
) -> bool:
    """Delete, then poll; True when it is gone. Repeating the delete is harmless.

    A look for the ledger comes first: see `_needs_look`. After an accepted delete, the provider's own word that it has
    no such machine is enough; before that, its absence has to be confirmed.
    """
    accepted_at: datetime | None = None
    if operations.is_accepted(operation):
        try:
            remote = await ctx.poll(
                novita_id,
                newer_than=_looked_at(instance, operation),
                needs_addresses=False,
                is_urgent=True,
                leaves_list=True,
            )
        except ProviderNotFound as error:
            if error.is_certain_refusal:
                return True
            # The page of a gateway says nothing about the machine: the delete is sent again.
        else:
            await _note(operation, remote, ctx, times=_times(operation, remote))
            if state_of(remote) in (MachineState.GONE, MachineState.GOING_AWAY):
                return state_of(remote) is MachineState.GONE
    elif _needs_look(instance, intent, ctx):
        accepted_at = await _look(novita_id, instance, operation, intent, ctx)

    async def renew_intent() -> None:
        if intent.earlier_at is None and now() - intent.written_at > INTENT_AGE_MAX:
            intent.written_at = now()
            async with ctx.write() as session:
                await operations.note_sent(session, operation.id, intent.written_at, again=True)
        intent.sent_at = now()

    try:
        # Once: after a repetition it would not be known which of the two took effect.
        await ctx.novita.delete_instance(novita_id, is_repeatable=False, before_sending=renew_intent)
    except ProviderNotFound:
        if not await _is_shown(novita_id, ctx) and await ctx.services.absences.confirm(
            operation.instance_id, novita_id, is_deleting=True
        ):
            return True
        raise
    except NovitaError as error:
        if error.is_certain_refusal and intent.earlier_at is None:
            async with ctx.write() as session:
                await operations.note_sent(session, operation.id, None, again=True)
        raise
    known_at = (accepted_at or accepted_by(intent.sent_at, ctx)).isoformat()

    async def accept(session: AsyncSession) -> None:
        await operations.mark_accepted(session, operation.id, accepted_at=known_at)
        await operations.record_wait(session, operation.id)

    await ctx.record(accept, call="delete", machine=novita_id, accepted_at=known_at)
    return False


def _needs_look(instance: Instance, intent: Intent, ctx: JobContext) -> bool:
    """Whether the machine may cost more or less than the ledger knows: a call without a known end may have started or
    stopped it, or deleted it; and one that runs may have ended by itself since it was last looked at, which is found
    out only while the rate limit has calls to spare."""
    word = instance.novita_status  # None: it has not been seen
    is_unsure = _may_have_ended(instance, intent) or word in MAY_BE_PAID_UNSEEN or word not in STATES
    return is_unsure or (instance.novita_status in BILLED_WORDS and not ctx.novita.is_short_of_calls)


def _may_have_ended(instance: Instance, intent: Intent) -> bool:
    """By an earlier delete, by another call without a known end, or by its announced reclaim."""
    is_reclaimed = instance.novita_status in BILLED_WORDS and (
        instance.spot_reclaim_at is not None and instance.spot_reclaim_at <= now()
    )
    return intent.earlier_at is not None or intent.has_open_end or is_reclaimed


async def _look(
    novita_id: str, instance: Instance, operation: Operation, intent: Intent, ctx: JobContext
) -> datetime | None:
    """When an earlier delete, whose response was lost, was sent, if it was carried out."""
    unsure_since = intent.earlier_at or operation.created_at
    try:
        remote = await look_before_removal(
            novita_id, ctx, unsure_since=unsure_since if _may_have_ended(instance, intent) else None
        )
    except ProviderNotFound as error:
        is_new = instance.novita_status is None  # which may not be shown yet
        return intent.earlier_at if error.is_certain_refusal and not is_new else None
    if remote is None:
        return None
    if state_of(remote) in (MachineState.GONE, MachineState.GOING_AWAY):
        await _note(operation, remote, ctx, times=_times(operation, remote))
        return intent.earlier_at
    intent.written_at, intent.earlier_at = now(), None  # the earlier ones have done nothing
    await _note(operation, remote, ctx, times=times_of(remote), sends_at=intent.written_at)
    return None


async def _note(
    operation: Operation,
    remote: RemoteInstance,
    ctx: JobContext,
    *,
    times: MachineTimes,
    sends_at: datetime | None = None,
) -> None:
    cause = transitions.Cause(operation.id, operation.requested_by)
    seen = {**observed_columns(remote), "observed_at": now()}
    async with ctx.write() as session:
        await transitions.update(session, operation.instance_id, cause=cause, times=times, **seen)
        if sends_at is not None:
            await operations.note_sent(session, operation.id, sends_at, again=True)


def _times(
    operation: Operation, remote: RemoteInstance | None = None, *, missing_since: datetime | None = None
) -> MachineTimes:
    """A machine is not paid for from the moment at which its removal was accepted, as far as that is known; one that
    was lost before, from the first look that did not find it, and one that had stopped before, from then on. Without
    the response to a removal, the time that the provider names counts before the one at which it was sent."""
    accepted_at = operation.before.get("accepted_at")
    known_ends = [each for each in (operations.sent_at(operation), missing_since) if each is not None]
    ended_at = min(known_ends, default=None) if accepted_at is None else datetime.fromisoformat(accepted_at)
    known = NO_TIMES if remote is None else times_of(remote)
    if ended_at is None or (remote is not None and state_of(remote) is MachineState.DOWN):
        return known
    if known.missed_run is not None and (accepted_at is None or known.missed_run[1] < ended_at):
        return known
    return replace(known, stopped_at=ended_at)


def _looked_at(instance: Instance, operation: Operation) -> datetime:
    return max(instance.observed_at or operation.created_at, operation.created_at)


async def _is_shown(novita_id: str, ctx: JobContext) -> bool:
    try:
        await ctx.novita.instance(novita_id)
    except ProviderNotFound:
        return False
    return True


async def _resolve_attempt(attempt: Attempt, waited: timedelta, ctx: JobContext) -> Outcome:
    """Find out what a create that was in flight when the delete was accepted has made: that must be deleted too."""
    remote = await ctx.services.markers.find(str(attempt.marker))
    if remote is None and (left := unresolved_timeout(ctx) - waited) > timedelta(0):
        return Again(after=min(left, timedelta(seconds=2)))
    async with ctx.write() as session:
        if remote is None:
            await end_absent(session, attempt)
        else:
            await link_created(session, attempt, remote.id)
    return Again(after=timedelta(0))
