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
from server.db.tables import ProbeResult
from server.enums import InstanceStatus, OperationStatus
from server.errors import NovitaError, ProviderNotFound
from server.instances import operations, transitions
from server.instances.provider.drift import recover
from server.instances.provider.poller import NotYet
from server.instances.provider.states import MachineState, observed_fields, state_of
from server.instances.queries.for_jobs import CheckView
from server.jobs.failures import GONE, Reason, fail_operation, fail_with_job
from server.jobs.registry import JobContext, handles
from server.jobs.startup import fail_down
from server.probes import results as rows
from server.probes.plan import CheckPlan, ProbeTarget, default_plan, probe_targets
from server.probes.verdict import Health, health_of, is_retryable, is_settled, merge_outcomes, next_round, summary
from server.probes.watch import reset_failures
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import CheckHealth

PROBE_TIMEOUT_MIN = timedelta(seconds=1)


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
    if work.operation_id is not None and view.results:  # not before the first round: it has just been seen running
        ended = await _end_if_down(work, work.operation_id, view, ctx)
        if ended is not None:
            return ended
    plan = default_plan(ctx.settings).with_stored(view.health_check)
    targets = probe_targets(plan, view.ports, view.endpoints)
    if not targets:
        return await _nothing_to_probe(work, plan, ctx)
    if any(target.address is None for target in targets):
        targets = await _with_addresses(work, view, targets, plan, ctx)

    since = view.status_since if work.asked_at is None else datetime.fromtimestamp(work.asked_at, UTC)
    left = since + plan.max_wait - now()
    this = next_round(targets, view.results, plan, since=since)
    probe = ctx.services.prober.probe
    findings = await asyncio.gather(*(probe(each, plan, within=max(left, PROBE_TIMEOUT_MIN)) for each in this.due))
    results = merge_outcomes(this, findings, at=now())

    is_over = all(is_settled(result, plan) for result in results)
    left = since + plan.max_wait - now()
    async with ctx.services.check_views.writing, ctx.write() as session:
        await rows.save_results(session, {work.instance_id: results})
        if is_over or left <= timedelta(0):
            cause = transitions.Cause(work.operation_id, view.requested_by if work.operation_id is not None else None)
            await transitions.record_health(session, work.instance_id, results, cause=cause)
            if work.operation_id is None and health_of(results) is Health.HEALTHY:
                await _mark_healthy(session, work.instance_id, view.status_since, results)
        if work.operation_id is not None and (health_of(results) is Health.HEALTHY or left <= timedelta(0)):
            await _finish(session, work, results)
            return Done()
    if work.operation_id is None and (is_over or left <= timedelta(0)):
        return Done()
    retry_delay = plan.retry_delay(max(result.attempts for result in results if not result.is_healthy))
    return Again(after=min(retry_delay, max(left, timedelta(0))))


def _is_current(work: CheckHealth, view: CheckView) -> bool:
    """False if the instance is deleted, failed or already READY. On demand: whether there may be a machine."""
    if work.operation_id is None:
        return view.status in CHECKABLE
    return view.operation_id == work.operation_id and view.status == InstanceStatus.HEALTH_CHECKING


async def _end_if_down(work: CheckHealth, operation_id: UUID, view: CheckView, ctx: JobContext) -> Outcome | None:
    """The outcome if the machine of an unhealthy instance is down or gone; None to go on probing.

    Without an answer of the provider, probing goes on too, and the next round looks again.
    """
    novita_id = str(view.novita_id)
    try:
        remote = await ctx.poll(novita_id)
    except ProviderNotFound:
        if not await ctx.services.absences.confirm(work.instance_id, novita_id):
            return None
        async with ctx.write() as session:
            await fail_operation(session, work.instance_id, operation_id, GONE)
        return Done()
    except (NovitaError, NotYet):
        return None
    if state_of(remote) is MachineState.GOING_DOWN and remote.status != view.novita_status:
        async with ctx.write() as session:  # why it is down may be known only from the word before
            cause = transitions.Cause(operation_id, view.requested_by)
            await transitions.update(session, work.instance_id, cause=cause, novita_status=remote.status)
    if state_of(remote) not in (MachineState.DOWN, MachineState.GOING_AWAY, MachineState.GONE):
        return None
    return await fail_down(work.instance_id, operation_id, remote, ctx, last_seen=view.novita_status)


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
