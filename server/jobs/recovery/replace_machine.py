"""Makes another machine for an instance whose spot machine is about to be reclaimed, and lets it take its place.

Each run reads the rows and decides anew, so a worker may be killed anywhere: a create without a response is searched
for by its marker, and a machine that was made is a row, which is used, or removed with the end of the operation.
"""

import asyncio
from datetime import timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Machine, Operation, ProbeResult
from server.enums import InstanceStatus, OperationPhase
from server.errors import NovitaError, ProviderNotFound
from server.instances import attempts, machines, operations, transitions
from server.instances.limits.of_token import regions_of_run
from server.instances.provider.drift import apply_snapshot
from server.instances.provider.settle import settle_later
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, state_of, times_of
from server.instances.status import UP
from server.jobs.creates.make_machine import make_machine, resolve_attempt
from server.jobs.failures import GONE, Reason, look_later, retry_later
from server.jobs.market.waiting import offers_of_older
from server.jobs.recovery.another_machine import another_machine
from server.jobs.registry import JobContext, growing_pause, handles
from server.jobs.startup import ready_timeout
from server.novita.models import RemoteInstance
from server.novita.transport.concurrency import CallPriority
from server.probes.plan import default_plan, probe_targets
from server.probes.verdict import CheckRound, Health, health_of, merge_outcomes, summary
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import ReplaceMachine
from server.recovery import replacement
from server.recovery.relocation import Wanted

S = InstanceStatus
POLL_MAX = timedelta(seconds=5)
ENDING = (MachineState.GOING_DOWN, MachineState.DOWN, MachineState.GOING_AWAY, MachineState.GONE)
NOT_NEEDED = Reason("REPLACEMENT_NOT_NEEDED", "Its machine no longer serves, or was replaced.", retryable=False)
TOO_LATE = Reason("RECLAIMED_FIRST", "Its machine was reclaimed before another one was made.", retryable=True)


async def fail_replacement(session: AsyncSession, work: ReplaceMachine, failure: Failure) -> None:
    """For `failed`."""
    await _fail(session, Reason(failure.code, failure.message, failure.retryable), work=work)


@handles(ReplaceMachine, failed=fail_replacement)
async def replace_machine(work: ReplaceMachine, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.PLACING)
        if operation is None:
            return Done()  # superseded, cancelled or done
        instance = await transitions.lock(session, work.instance_id)
        if instance.status == S.STARTING:
            return Done()  # an earlier run was killed after the spare had taken over
        spare = await machines.spare_of(session, instance.id)
        live = await attempts.live_of_instance(session, instance.id)
        past = tuple(await attempts.of_operation(session, operation.id))
        is_one_leaving = await machines.is_one_leaving(session, instance.id)
        wanted = Wanted.of(operation, within=await regions_of_run(session, instance.id))
        older = await offers_of_older(session, instance, operation, None)
    try:
        if live is not None:
            return await _next_run(await resolve_attempt(live, attempts.age(live), ctx))
        instance = await _look_at_old(instance, operation, ctx)
        if not replacement.is_needed(instance, operation):
            return await _end(work, ctx, NOT_NEEDED)
        if instance.status not in UP:
            return await _follow_end(work, instance, spare, ctx)
        if spare is not None:
            return await _follow_spare(work, instance, spare, ctx)
        if is_one_leaving:
            return Again(after=POLL_MAX)  # there are never more than two
        fail = partial(_fail, work=work)
        making = another_machine(work, operation, instance, past, wanted, ctx, older=older, fail=fail)
        return await _next_run(await make_machine(making, ctx))
    except NovitaError as error:
        return retry_later(error, since=operation.created_at, ctx=ctx, is_look=live is not None or spare is not None)


async def _next_run(outcome: Outcome) -> Outcome:
    """A machine was made, or the operation has ended: the rows say it."""
    return Again(after=timedelta(0)) if isinstance(outcome, Done) else outcome


async def _look_at_old(instance: Instance, operation: Operation, ctx: JobContext) -> Instance:
    """The machine that is to be replaced may end meanwhile; while it can't be read, it serves."""
    if instance.novita_id is None or instance.status not in UP | {S.STOPPING}:
        return instance
    asked_at = now()
    try:
        remote = await ctx.novita.instance(instance.novita_id, priority=CallPriority.POLL)
        snapshot = ProviderSnapshot.of(remote, asked_at=asked_at)
    except ProviderNotFound:
        if not await ctx.services.absences.confirm(instance.id, instance.novita_id):
            return instance
        snapshot = None
    except NovitaError:
        return instance
    if snapshot is not None and state_of(snapshot) not in ENDING:
        return instance
    async with ctx.write() as session:
        if await operations.lock_open(session, operation.id) is not None:
            cause = transitions.Cause(operation.id)
            await apply_snapshot(
                session,
                instance.id,
                snapshot,
                machine=instance.novita_id,
                asked_at=asked_at,
                cause=cause,
                during=operation.id,
            )
        return await transitions.lock(session, instance.id)


async def _follow_end(work: ReplaceMachine, instance: Instance, spare: Machine | None, ctx: JobContext) -> Outcome:
    """The old machine has ended as announced: the spare takes over as it is, or recovery goes on by its steps."""
    if instance.status == S.STOPPING:
        return Again(after=growing_pause(now() - instance.status_since, longest=POLL_MAX))
    if spare is None:
        return await _end(work, ctx, TOO_LATE)
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.PROVISIONING)
        current = await transitions.lock(session, work.instance_id)
        if operation is not None and current.version == instance.version:
            await replacement.take_over(session, current, operation, spare)
            return Done()
    return Again(after=timedelta(0))


async def _follow_spare(work: ReplaceMachine, instance: Instance, spare: Machine, ctx: JobContext) -> Outcome:
    waited = now() - spare.began_at
    try:
        remote = await ctx.novita.instance(spare.novita_id, priority=CallPriority.POLL)
    except ProviderNotFound:
        return await _follow_missing(work, spare, waited, ctx)
    except NovitaError as error:
        return look_later(error, since=spare.began_at, ctx=ctx)
    async with ctx.write() as session:
        await machines.note_seen(session, spare, remote.status, times_of(remote))
    plan = default_plan(ctx.settings).with_stored(instance.health_check)
    longest = ready_timeout(instance.ready_timeout_seconds, ctx)
    match state_of(remote):
        case MachineState.UP:
            results = await _probe(instance, remote, ctx)
            if results is not None and (not results or health_of(results) is Health.HEALTHY):
                return await _hand_over(work, spare, remote, results, ctx)
            if waited > longest + plan.max_wait:
                return await _end(work, ctx, Reason("HEALTH_CHECK_FAILED", summary(results or []), retryable=True))
            return Again(after=min(plan.retry_delay(2), POLL_MAX))
        case MachineState.DOWN | MachineState.GONE | MachineState.GOING_AWAY:
            message = f"The other machine became {remote.status} before it was ready."
            return await _end(work, ctx, Reason("START_FAILED", message, retryable=True))
        case _ if waited > longest:
            message = f"The other machine was still {remote.status} after {waited.total_seconds():.0f} s."
            return await _end(work, ctx, Reason("READY_TIMEOUT", message, retryable=True))
        case _:
            return Again(after=growing_pause(waited, longest=POLL_MAX))


async def _follow_missing(work: ReplaceMachine, spare: Machine, waited: timedelta, ctx: JobContext) -> Outcome:
    """One answer proves nothing: two that are GONE_GRACE apart, and the list."""
    async with ctx.write() as session:
        missing_for = await machines.note_missing(session, spare)
    if missing_for >= ctx.settings.gone_grace and not await ctx.services.absences.is_listed(spare.novita_id):
        return await _end(work, ctx, GONE)
    return Again(after=growing_pause(waited, longest=POLL_MAX))


async def _probe(instance: Instance, remote: RemoteInstance, ctx: JobContext) -> list[ProbeResult] | None:
    """One round; None while an address is missing, and nothing if there is nothing to probe."""
    plan = default_plan(ctx.settings).with_stored(instance.health_check)
    endpoints = [{"port": each.port, "type": each.type, "address": each.address} for each in remote.endpoints]
    targets = probe_targets(plan, instance.ports, [each for each in endpoints if each["address"]])
    if any(target.address is None for target in targets):
        return None
    probe = ctx.services.prober.probe
    findings = await asyncio.gather(*(probe(each, plan, within=plan.timeout) for each in targets))
    return merge_outcomes(CheckRound({}, tuple(targets)), findings, at=now())


async def _hand_over(
    work: ReplaceMachine, spare: Machine, remote: RemoteInstance, results: list[ProbeResult], ctx: JobContext
) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.CHECKING_HEALTH)
        if operation is None:
            return Done()
        instance = await transitions.lock(session, work.instance_id)
        if instance.status not in UP or not replacement.is_needed(instance, operation):
            return Again(after=timedelta(0))
        await replacement.hand_over(session, instance, operation, spare, remote, results)
    return Done()


async def _end(work: ReplaceMachine, ctx: JobContext, reason: Reason) -> Outcome:
    async with ctx.write() as session:
        await _fail(session, reason, work=work)
    return Done()


async def _fail(session: AsyncSession, reason: Reason, *, work: ReplaceMachine) -> None:
    """End the operation, which removes the spare; the instance keeps its status. What may exist is searched for."""
    live = await attempts.live_of_instance(session, work.instance_id)
    operation = await operations.fail(
        session, work.operation_id, code=reason.code, message=reason.message, retryable=reason.retryable
    )
    if operation is not None and live is not None and live.operation_id == operation.id:
        await settle_later(session, live, await transitions.lock(session, work.instance_id))
