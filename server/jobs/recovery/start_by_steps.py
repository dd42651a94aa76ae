"""Starts an instance by steps: the same machine, the machine on another node, or a new machine.

A clear refusal of the provider leads to the next step. Once a step was accepted, the machine is monitored as after any
start, and what fails then ends the operation.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance
from server.enums import OperationPhase, StartStep
from server.errors import NovitaError, ProviderNotFound
from server.instances import attempts, machines, operations, transitions
from server.instances.limits.of_token import regions_of_run
from server.instances.provider.settle import note_doubt, settle_later
from server.instances.provider.states import MachineState, state_of
from server.instances.status import has_machine
from server.jobs.creates.make_machine import Making, has_place, make_machine, resolve_attempt
from server.jobs.failures import Reason, retry_later
from server.jobs.market.start_wait import NO_STOCK, wait_for_stock, wake_up
from server.jobs.market.waiting import offers_of_older, provider_since
from server.jobs.migrate_instance import is_migrated, migration
from server.jobs.provider_call import Loaded, drive
from server.jobs.recovery.another_machine import another_machine
from server.jobs.registry import JobContext, growing_pause, handles
from server.jobs.start_instance import is_started, start
from server.market import waits
from server.market.waits import Waiting
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import StartBySteps
from server.recovery import steps
from server.recovery.outcome import back_to
from server.recovery.relocation import Wanted

LEAVING_POLL_MAX = timedelta(seconds=5)
NO_STEP = Reason("NO_START_STEP", "The provider has no machine for it, and none of the steps makes one.", False)


async def fail_start(session: AsyncSession, work: StartBySteps, failure: Failure) -> None:
    """For `failed`."""
    await _fail(session, Reason(failure.code, failure.message, failure.retryable), work=work)


@handles(StartBySteps, failed=fail_start)
async def start_by_steps(work: StartBySteps, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        if operation is None:
            return Done()  # superseded or cancelled
        instance = await transitions.lock(session, work.instance_id)
        waiting = await waits.load(session, operation)
        if waiting is not None and not waiting.is_awake_in(ctx.claim.job_id):
            return Done()  # it sleeps, or has another job
        step = steps.current(operation, instance)
        if step is None:
            await _fail(session, NO_STEP, work=work)
            return Done()
        if operation.before.get("step") is None:
            operation = await operations.begin_step(session, operation.id, step)
            await steps.tell_step(session, instance, operation, step, None)

    if step not in (StartStep.SAME, StartStep.MIGRATE):
        return await _relocate(work, waiting, ctx)

    async def fail(session: AsyncSession, reason: Reason) -> None:
        await _fail(session, reason, work=work)

    woken = await wake_up(work, ctx, fail)
    if isinstance(woken, Done):
        return woken

    async def refused(_loaded: Loaded, reason: Reason, _last_seen: MachineState | None) -> Outcome:
        if await _go_on(work, step, reason, ctx):
            return Again(after=timedelta(0))
        if woken is not None and reason.code == NO_STOCK:
            return await wait_for_stock(work, woken, reason, ctx, fail)
        async with ctx.write() as session:
            await fail(session, reason)
        return Done()

    if step is StartStep.SAME:
        return await drive(
            work,
            ctx,
            phase=steps.PHASES[step],
            is_done=is_started,
            call=start(ctx),
            refused=refused,
            waiting=woken,
        )
    return await drive(
        work,
        ctx,
        phase=steps.PHASES[step],
        is_done=is_migrated,
        call=migration(ctx),
        waits_for_jobs=True,
        refused=refused,
        waiting=woken,
    )


async def _go_on(work: StartBySteps, step: StartStep, reason: Reason, ctx: JobContext) -> bool:
    """Whether there is a next step."""
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        if operation is None:
            return False
        return await steps.go_on(session, operation, steps.StepRefusal(step, reason.code, reason.message))


async def _relocate(work: StartBySteps, waiting: Waiting | None, ctx: JobContext) -> Outcome:
    """Make a new machine by the attempts of a create; linking it retires the old one."""
    async with ctx.write() as session:
        operation = await operations.set_phase(session, work.operation_id, OperationPhase.PLACING)
        if operation is None or operation.phase != OperationPhase.PLACING:
            return Done()  # an earlier run was killed after it had linked the new machine
        instance = await transitions.lock(session, work.instance_id)
        live = await attempts.live_of_instance(session, instance.id)
        waited = timedelta(0) if live is None else attempts.age(live)
        past = tuple(await attempts.of_operation(session, operation.id))
        is_one_leaving = await machines.is_one_leaving(session, instance.id)
        wanted = Wanted.of(operation, within=await regions_of_run(session, instance.id))
        older = await offers_of_older(session, instance, operation, waiting)
        since = provider_since(operation, waiting, ctx)
        if live is not None and live.operation_id == operation.id:
            await note_doubt(session, live)
    try:
        if live is not None and live.operation_id == operation.id:
            return await resolve_attempt(live, waited, ctx)
        if live is not None or is_one_leaving:
            # A machine of a former operation may exist, and there are never more than two.
            return await _wait_for_former(work, since, ctx)
        if waiting is not None and await _return_to_former(work, instance, waiting, ctx):
            return Again(after=timedelta(0))
        fail = partial(_fail, work=work)
        making = another_machine(work, operation, instance, past, wanted, ctx, older=older, fail=fail, waiting=waiting)
        if instance.volumes and has_machine(instance):
            return await _release_volumes(work, making, ctx)
        return await make_machine(making, ctx)
    except NovitaError as error:
        return retry_later(error, since=since, ctx=ctx, is_look=live is not None)


async def _return_to_former(work: StartBySteps, instance: Instance, waiting: Waiting, ctx: JobContext) -> bool:
    """Whether its machine was started elsewhere while it waited for another one: then it goes on with that."""
    if waiting.row is None or waiting.row.offer_region is not None or waiting.is_over or not has_machine(instance):
        return False
    try:
        remote = await ctx.novita.instance(str(instance.novita_id))
    except ProviderNotFound:
        return False
    if state_of(remote) not in (MachineState.UP, MachineState.COMING_UP):
        return False
    async with ctx.write() as session:
        if await operations.lock_open(session, work.operation_id) is not None:
            await operations.begin_step(session, work.operation_id, StartStep.SAME)
    return True


async def _wait_for_former(work: StartBySteps, since: datetime, ctx: JobContext) -> Outcome:
    waited = now() - since
    if waited <= ctx.settings.provider_max_wait:
        return Again(after=growing_pause(waited, longest=LEAVING_POLL_MAX))
    async with ctx.write() as session:
        await _fail(session, Reason("PROVIDER_BUSY", "Its former machine is still being removed.", True), work=work)
    return Done()


async def _release_volumes(work: StartBySteps, making: Making, ctx: JobContext) -> Outcome:
    """The provider lets one machine have a volume, also one that is stopped: the old one has to go first.

    Only if there is a place for the new one: a start that is refused keeps the machine.
    """
    if not await has_place(making, ctx):
        return await make_machine(making, ctx)  # which finds none: it waits, or fails
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        if operation is None:
            return Done()
        cause = transitions.Cause(operation.id, operation.requested_by)
        none: dict[str, Any] = {"novita_id": None, "novita_status": None, "endpoints": [], "missing_since": None}
        await transitions.update(session, work.instance_id, cause=cause, **none)
    return Again(after=timedelta(0))


async def _fail(session: AsyncSession, reason: Reason, *, work: StartBySteps) -> None:
    """End the operation; a machine that it may have made is searched for by a job of its own."""
    live = await attempts.live_of_instance(session, work.instance_id)
    operation = await operations.fail(
        session, work.operation_id, code=reason.code, message=reason.message, retryable=reason.retryable
    )
    if operation is None:
        return
    instance = await transitions.lock(session, work.instance_id)
    to, fields = back_to(operation, instance, reason.code, reason.message)
    cause = transitions.Cause(operation.id, operation.requested_by)
    await transitions.transition(session, instance.id, to, cause=cause, **fields)
    if live is not None and live.operation_id == work.operation_id:
        await settle_later(session, live, instance)
