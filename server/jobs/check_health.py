"""Proving that what runs inside really answers: only then is an instance READY."""

import asyncio

from server.clock import now
from server.db.tables import Instance
from server.instances import moves, operations
from server.jobs.handler import Reason, Tools, fail_operation, fail_with_the_job, handles
from server.probes.probe import Probe
from server.queue.kinds import CheckHealth
from server.queue.outcome import Again, Done, Outcome
from server.words import InstanceStatus, OperationStatus


@handles(CheckHealth, failed=fail_with_the_job)
async def check_health(work: CheckHealth, tools: Tools) -> Outcome:
    async with tools.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
        operation = await operations.open_operation(session, work.instance_id)
    if operation is None or operation.id != work.operation_id or instance.status != InstanceStatus.HEALTH_CHECKING:
        return Done()

    urls = [str(endpoint["address"]) for endpoint in instance.endpoints if endpoint["type"] == "http"]
    probes = await asyncio.gather(*(tools.services.prober.probe(url) for url in urls))
    waited = now() - instance.status_since
    if not all(probe.is_healthy for probe in probes) and waited < tools.settings.health_check_max_wait:
        return Again(after=tools.settings.health_check_delay)

    async with tools.write() as session:
        if not all(probe.is_healthy for probe in probes):
            reason = Reason("HEALTH_CHECK_FAILED", _summary(probes), retryable=True)
            await fail_operation(session, work.instance_id, work.operation_id, reason)
            return Done()
        if await operations.still_open(session, work.operation_id) is None:
            return Done()
        cause = moves.Cause(work.operation_id, operation.requested_by)
        await moves.move(session, work.instance_id, InstanceStatus.READY, cause=cause)
        await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()


def _summary(probes: list[Probe]) -> str:
    return "; ".join(f"{probe.url}: {probe.problem}" for probe in probes if not probe.is_healthy)
