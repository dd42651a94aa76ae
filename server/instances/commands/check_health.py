"""Checks an instance's endpoints on request."""

import asyncio
import time
from datetime import datetime, timedelta
from uuid import UUID

from server.auth.caller import Caller
from server.clock import now
from server.db.database import Database
from server.db.tables import Instance
from server.enums import InstanceStatus
from server.errors import IllegalTransition, NotFound, Refused
from server.instances.queries import instances
from server.instances.status import TRANSITIONS
from server.probes.plan import CheckPlan, probe_targets
from server.probes.results import results_of
from server.probes.verdict import is_settled
from server.queue.enqueue import enqueue
from server.queue.kinds import CheckHealth

# A FAILED instance may still run, and may be healthy again.
CHECKABLE = frozenset(
    {InstanceStatus.RUNNING, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY, InstanceStatus.FAILED}
)
POLL_INTERVAL = 0.1


async def ask_for_check(database: Database, instance_id: UUID, *, defaults: CheckPlan, by: Caller) -> datetime:
    """Enqueue a check of all endpoints. Its results are newer than the returned time."""
    asked_at = now()
    async with database.write() as session:
        instance = await instances.get_instance(session, instance_id, by=by)
        if instance is None:
            raise NotFound("instance", ("input", "instanceId"))
        _refuse_uncheckable(instance, defaults.with_stored(instance.health_check))
        await enqueue(
            session,
            CheckHealth(instance_id=instance.id, asked_at=asked_at.timestamp()),
            project_id=instance.project_id,
            instance_id=instance.id,
        )
    return asked_at


async def await_check(
    database: Database, instance_id: UUID, *, since: datetime, defaults: CheckPlan, timeout: timedelta
) -> bool:
    """Wait until every endpoint was probed, and probed again if it was unhealthy. False after the timeout."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        async with database.read() as session:
            instance = await session.get_one(Instance, instance_id)
            results = (await results_of(session, [instance_id]))[instance_id]
        plan = defaults.with_stored(instance.health_check)
        if results and all(result.checked_at >= since and is_settled(result, plan) for result in results):
            return True
        if time.monotonic() + POLL_INTERVAL > deadline:
            return False
        await asyncio.sleep(POLL_INTERVAL)


def _refuse_uncheckable(instance: Instance, plan: CheckPlan) -> None:
    status = InstanceStatus(instance.status)
    if status not in CHECKABLE or instance.novita_id is None:
        message = f"An instance that is {status} can't be checked."
        raise IllegalTransition("INSTANCE_NOT_RUNNING", message, current=status, allowed=sorted(TRANSITIONS[status]))
    if probe_targets(plan, instance.ports, instance.endpoints):
        return
    if plan.target_port is not None:
        message = f"The instance does not expose port {plan.target_port}, which should be checked."
        raise Refused("TARGET_PORT_NOT_EXPOSED", message)
    raise Refused("NOTHING_TO_CHECK", "The instance exposes no http port.")
