"""Probes the endpoints of an instance: it is READY when they respond.

On demand, a check that succeeds makes a FAILED instance READY if its machine runs, and a degraded one healthy.

Each run is one round of probes. Results are stored in rows and pauses are waited for in the job table, so checking a
thousand instances takes at most a thousand open sockets, and a killed worker loses one round.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, ProbeResult
from server.enums import InstanceStatus, OperationStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import operations, transitions
from server.instances.provider.drift import Correction, apply_snapshot, recover
from server.instances.provider.ends import SPOT_RECLAIMED, End, find_end
from server.instances.provider.poller import NotYet
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import STATES, MachineState, observed_fields, state_of
from server.instances.queries.for_jobs import CheckView
from server.jobs.failures import (
    GONE,
    PAUSE_MIN,
    Reason,
    fail_operation,
    fail_with_job,
    look_later,
    wait_for_provider,
)
from server.jobs.registry import JobContext, growing_pause, handles
from server.jobs.startup import MISSING_POLL_INTERVAL, fail_down
from server.novita.transport.concurrency import CallPriority
from server.probes import results as rows
from server.probes.plan import CheckPlan, ProbeTarget, default_plan, probe_targets
from server.probes.verdict import Health, health_of, is_retryable, is_settled, merge_outcomes, next_round, summary
from server.probes.watch import reset_failures
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import CheckHealth

PROBE_TIMEOUT_MIN = timedelta(seconds=1)
STOPPING_POLL_INTERVAL = timedelta(seconds=10)
DOWN = (MachineState.DOWN, MachineState.GOING_AWAY, MachineState.GONE)

CHECKABLE = frozenset(
    {InstanceStatus.RUNNING, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY, InstanceStatus.FAILED}
)


async def fail_with_operation(session: AsyncSession, work: CheckHealth, failure: Failure) -> None:
    """The operation, if there is one, fails with its job."""
    if work.operation_id is not None:
        await fail_with_job(session, work, failure)


@handles(CheckHealth, failed=fail_with_operation)
async def check_health(work: CheckHealth, ctx: JobContext) -> Outcome:
    view = await ctx.services.check_views.of(work.instance_id)
    if view is None or not _is_current(work, view):
        return Done()
    plan = default_plan(ctx.settings).with_stored(view.health_check)
    since = view.status_since if work.asked_at is None else datetime.fromtimestamp(work.asked_at, UTC)
    is_late = since + plan.max_wait <= now()
    # Not before the first round, unless there is a reason: it has just been seen running.
    if work.operation_id is not None and (view.results or is_late or _may_be_down(view)):
        outcome = await _look_first(work, work.operation_id, view, plan, ctx)
        if outcome is not None:
            return outcome
    targets = probe_targets(plan, view.ports, view.endpoints)
    if not targets:
        return await _nothing_to_probe(work, plan, ctx)
    if any(target.address is None for target in targets):
        targets = await _with_addresses(work, view, targets, plan, ctx)

    left = since + plan.max_wait - now()
    this = next_round(targets, view.results, plan, since=since)
    probe = ctx.services.prober.probe
    findings = await asyncio.gather(*(probe(each, plan, within=max(left, PROBE_TIMEOUT_MIN)) for each in this.due))
    results = merge_outcomes(this, findings, at=now())

    is_over = all(is_settled(result, plan) for result in results)
    left = since + plan.max_wait - now()
    is_healthy = health_of(results) is Health.HEALTHY
    is_verdict = is_over or left <= timedelta(0)
    async with ctx.services.check_views.writing, ctx.write() as session:
        needs_machine = work.operation_id is not None and is_verdict and not is_healthy
        if needs_machine and _is_down(await transitions.lock(session, work.instance_id)):
            return Again(after=PAUSE_MIN)  # seen meanwhile: its endpoints say nothing about the application
        await rows.save_results(session, {work.instance_id: results})
        if is_verdict:
            cause = transitions.Cause(work.operation_id, view.requested_by if work.operation_id is not None else None)
            await transitions.record_health(session, work.instance_id, results, cause=cause)
            if work.operation_id is None and is_healthy:
                await _mark_healthy(session, work.instance_id, view.status_since, results)
        if work.operation_id is not None and (is_healthy or is_late):
            await _finish(session, work, results)
            return Done()
    if work.operation_id is None and is_verdict:
        return Done()
    retry_delay = plan.retry_delay(max(result.attempts for result in results if not result.is_healthy))
    return Again(after=min(retry_delay, max(left, timedelta(0))))


def _is_current(work: CheckHealth, view: CheckView) -> bool:
    """False if the instance is deleted, failed or already READY. On demand: whether there may be a machine."""
    if work.operation_id is None:
        return view.status in CHECKABLE
    return view.operation_id == work.operation_id and view.status == InstanceStatus.HEALTH_CHECKING


def _is_down(row: CheckView | Instance) -> bool:
    """Whether the provider's last known word says that the machine does not run, or stops."""
    state = STATES.get(row.novita_status or "")
    return state in (*DOWN, MachineState.GOING_DOWN) or row.missing_since is not None


def _may_be_down(view: CheckView) -> bool:
    return _is_down(view) or (view.spot_reclaim_at is not None and view.spot_reclaim_at <= now())


async def _look_first(
    work: CheckHealth, operation_id: UUID, view: CheckView, plan: CheckPlan, ctx: JobContext
) -> Outcome | None:
    """The outcome if the machine is down or may be; None to go on probing.

    Without an answer of the provider, probing goes on too if the machine ran when it was last seen; but no check fails
    before the provider has said that it still runs.
    """
    novita_id, deadline = str(view.novita_id), view.status_since + plan.max_wait
    asked_at, is_in_doubt = now(), _may_be_down(view)
    try:
        remote = None if is_in_doubt else await ctx.poll(novita_id)
        if remote is None or state_of(remote) in (*DOWN, MachineState.GOING_DOWN):
            # Not a shared poll: the time of the call decides whether the response is newer than the row.
            asked_at, is_in_doubt = now(), True
            remote = await ctx.novita.instance(novita_id, priority=CallPriority.POLL)
    except ProviderNotFound:
        if not await ctx.services.absences.confirm(work.instance_id, novita_id):
            return Again(after=MISSING_POLL_INTERVAL)
        async with ctx.write() as session:
            await fail_operation(session, work.instance_id, operation_id, GONE)
        return Done()
    except NotYet as not_yet:
        return Again(after=not_yet.after) if deadline <= now() else None
    except NovitaError as error:
        if deadline <= now():
            return look_later(error, since=max(view.known_since, deadline), ctx=ctx)
        return wait_for_provider(error, now() - view.known_since) if is_in_doubt else None
    if not is_in_doubt:
        return None
    snapshot = ProviderSnapshot.of(remote, asked_at=asked_at)
    if state_of(remote) in DOWN:
        end = find_end(remote, last_seen=view.novita_status)
        if state_of(remote) is MachineState.DOWN and end is not None and end.reason == SPOT_RECLAIMED:
            return await _end_reclaimed(work.instance_id, operation_id, view, snapshot, end, ctx)
        return await fail_down(work.instance_id, operation_id, remote, ctx, last_seen=view.novita_status)
    async with ctx.write() as session:  # why it is down may be known only from the word before
        cause = transitions.Cause(operation_id, view.requested_by)
        await apply_snapshot(session, work.instance_id, snapshot, machine=novita_id, asked_at=asked_at, cause=cause)
    if state_of(remote) is not MachineState.GOING_DOWN:
        return None
    waited = now() - view.status_since
    if waited > plan.max_wait + ctx.settings.provider_max_wait:
        message = f"The instance was still {remote.status} at the provider after {waited.total_seconds():.0f} s."
        reason = Reason("PROVIDER_BUSY", message, retryable=True)
        async with ctx.write() as session:
            await fail_operation(session, work.instance_id, operation_id, reason)
        return Done()
    return Again(after=growing_pause(waited, longest=STOPPING_POLL_INTERVAL))


async def _end_reclaimed(
    instance_id: UUID, operation_id: UUID, view: CheckView, snapshot: ProviderSnapshot, end: End, ctx: JobContext
) -> Outcome:
    """EXITED as after any reclaim, and recovered if it has a recovery; the operation fails with the reason."""
    cause, machine = transitions.Cause(operation_id, view.requested_by), str(view.novita_id)
    async with ctx.write() as session:
        change = await apply_snapshot(
            session,
            instance_id,
            snapshot,
            machine=machine,
            asked_at=snapshot.asked_at,
            cause=cause,
            during=operation_id,
        )
        if change is not Correction.RECLAIMED:
            return Again(after=PAUSE_MIN)  # the row was written after the call: look again
        await operations.fail(session, operation_id, code=end.reason, message=end.message, retryable=True)
    return Done()


async def _nothing_to_probe(work: CheckHealth, plan: CheckPlan, ctx: JobContext) -> Outcome:
    """Fail if the configured port is not exposed; else there is nothing to check and the instance is READY."""
    if work.operation_id is None:
        return Done()
    async with ctx.write() as session:
        if plan.target_port is None:
            await _finish(session, work, [])
        else:
            message = f"The health check uses port {plan.target_port}, which the instance does not expose."
            reason = Reason("TARGET_PORT_NOT_EXPOSED", message, retryable=False)
            await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def _with_addresses(
    work: CheckHealth, view: CheckView, targets: list[ProbeTarget], plan: CheckPlan, ctx: JobContext
) -> list[ProbeTarget]:
    """Read missing addresses from the provider. Known addresses are probed even if that fails."""
    if view.novita_id is None:
        return targets
    try:
        remote = await ctx.poll(view.novita_id)
    except NovitaError:
        return targets
    if state_of(remote) is not MachineState.UP:
        return targets  # reconcile and monitor jobs handle its status
    async with ctx.write() as session:
        if (await transitions.lock(session, work.instance_id)).novita_id != view.novita_id:
            return targets  # another machine serves by now
        values: dict[str, Any] = observed_fields(remote)
        changed = await transitions.update(
            session, work.instance_id, cause=transitions.Cause(), observed_at=now(), **values
        )
    return probe_targets(plan, changed.ports, changed.endpoints)


async def _finish(session: AsyncSession, work: CheckHealth, results: Sequence[ProbeResult]) -> None:
    """Set READY or FAILED and end the operation."""
    if work.operation_id is None:
        return
    if results and health_of(results) is not Health.HEALTHY:
        retryable = any(is_retryable(result) for result in results)
        reason = Reason("HEALTH_CHECK_FAILED", summary(results), retryable=retryable)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
        return
    operation = await operations.lock_open(session, work.operation_id)
    if operation is None:
        return
    cause = transitions.Cause(work.operation_id, operation.requested_by)
    await transitions.transition(session, work.instance_id, InstanceStatus.READY, cause=cause)
    await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)


async def _mark_healthy(
    session: AsyncSession, instance_id: UUID, since: datetime, results: Sequence[ProbeResult]
) -> None:
    """After a check on demand in which every endpoint responded."""
    await recover(session, instance_id, results, since=since, cause=transitions.Cause())
    await transitions.record_degraded(session, instance_id, results, is_degraded=False, since=since)
    await reset_failures(session, instance_id)
