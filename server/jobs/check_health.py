"""Proving that what runs inside really answers: only then is an instance READY. Also on demand, moving nothing.

Each run is one round of probes. What was found is in the rows and the pauses are waited for in the job table, so a
thousand instances that are checked take no more than a thousand open sockets, and a killed worker loses one round.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.config import Settings
from server.db.tables import ProbeResult
from server.errors import NovitaError
from server.instances import moves, operations
from server.instances.checks import Standing
from server.instances.observed import Seen, facts, seen
from server.jobs.handler import Reason, Tools, fail_operation, fail_with_the_job, handles
from server.probes import results as rows
from server.probes.check import Health, after_round, health_of, is_retryable, is_settled, next_round, summary
from server.probes.plan import Plan, Target, targets
from server.queue.kinds import CheckHealth
from server.queue.outcome import Again, Done, Failure, Outcome
from server.words import InstanceStatus, OperationStatus

SHORTEST_PROBE = timedelta(seconds=1)
CHECKABLE = frozenset(
    {InstanceStatus.RUNNING, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY, InstanceStatus.FAILED}
)


async def fail_if_asked(session: AsyncSession, work: CheckHealth, failure: Failure) -> None:
    """The job is given up: so has its operation failed, where it has one."""
    if work.operation_id is not None:
        await fail_with_the_job(session, work, failure)


@handles(CheckHealth, failed=fail_if_asked)
async def check_health(work: CheckHealth, tools: Tools) -> Outcome:
    standing = await tools.services.checks.of(work.instance_id)
    if standing is None or not _is_wanted(work, standing):
        return Done()
    plan = default_plan(tools.settings).with_stored(standing.health_check)
    wanted = targets(plan, standing.ports, standing.endpoints)
    if not wanted:
        return await _nothing_to_probe(work, plan, tools)
    if any(target.address is None for target in wanted):
        wanted = await _with_addresses(work, standing, wanted, plan, tools)

    since = standing.status_since if work.asked_at is None else datetime.fromtimestamp(work.asked_at, UTC)
    left = since + plan.max_wait - now()
    this = next_round(wanted, standing.results, plan, since=since)
    probe = tools.services.prober.probe
    findings = await asyncio.gather(*(probe(each, plan, within=max(left, SHORTEST_PROBE)) for each in this.due))
    results = after_round(this, findings, at=now())

    is_over = all(is_settled(result, plan) for result in results)
    left = since + plan.max_wait - now()
    async with tools.services.checks.writing, tools.write() as session:
        await rows.save(session, work.instance_id, results, instead_of=standing.results)
        if is_over or left <= timedelta(0):
            cause = moves.Cause(work.operation_id, standing.requested_by if work.operation_id is not None else None)
            await moves.checked(session, work.instance_id, results, cause=cause)
        if work.operation_id is not None and (health_of(results) is Health.HEALTHY or left <= timedelta(0)):
            await _settle(session, work, results)
            return Done()
    if work.operation_id is None and (is_over or left <= timedelta(0)):
        return Done()
    pause = plan.pause(max(result.attempts for result in results if not result.is_healthy))
    return Again(after=min(pause, max(left, timedelta(0))))


def default_plan(settings: Settings) -> Plan:
    """For instances whose owners said nothing."""
    return Plan(
        timeout=settings.health_check_timeout,
        retries=settings.health_check_retries,
        delay=settings.health_check_delay,
        max_wait=settings.health_check_max_wait,
    )


def _is_wanted(work: CheckHealth, standing: Standing) -> bool:
    """Deleted, failed or ready already: no longer our business. On demand: as long as there may be a machine."""
    if work.operation_id is None:
        return standing.status in CHECKABLE
    return standing.operation_id == work.operation_id and standing.status == InstanceStatus.HEALTH_CHECKING


async def _nothing_to_probe(work: CheckHealth, plan: Plan, tools: Tools) -> Outcome:
    """The named port is not there; or nothing speaks http any more, and then there is nothing to prove."""
    if work.operation_id is None:
        return Done()
    async with tools.write() as session:
        if plan.target_port is None:
            await _settle(session, work, [])
        else:
            message = f"Port {plan.target_port} was to be checked, and the instance does not expose it."
            reason = Reason("TARGET_PORT_NOT_EXPOSED", message, retryable=False)
            await fail_operation(session, work.instance_id, work.operation_id, reason)
    return Done()


async def _with_addresses(
    work: CheckHealth, standing: Standing, wanted: list[Target], plan: Plan, tools: Tools
) -> list[Target]:
    """Ask the provider for addresses that it had not given yet. Whatever it says, what is known is probed."""
    if standing.novita_id is None:
        return wanted
    try:
        remote = await tools.look(standing.novita_id)
    except NovitaError:
        return wanted
    if seen(remote) is not Seen.UP:
        return wanted  # others watch its status
    async with tools.write() as session:
        values: dict[str, Any] = facts(remote)
        changed = await moves.note(session, work.instance_id, cause=moves.Cause(), observed_at=now(), **values)
    return targets(plan, changed.ports, changed.endpoints)


async def _settle(session: AsyncSession, work: CheckHealth, results: Sequence[ProbeResult]) -> None:
    """READY or FAILED, together with the operation."""
    if work.operation_id is None:
        return
    if results and health_of(results) is not Health.HEALTHY:
        can_help = any(is_retryable(result) for result in results)
        reason = Reason("HEALTH_CHECK_FAILED", summary(results), retryable=can_help)
        await fail_operation(session, work.instance_id, work.operation_id, reason)
        return
    operation = await operations.still_open(session, work.operation_id)
    if operation is None:
        return
    cause = moves.Cause(work.operation_id, operation.requested_by)
    await moves.move(session, work.instance_id, InstanceStatus.READY, cause=cause)
    await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
