"""A check of an instance's endpoints because somebody wants to know. It moves nothing."""

import asyncio
import time
from datetime import datetime, timedelta
from uuid import UUID

from server.auth.caller import Caller
from server.clock import now
from server.db.engine import Database
from server.db.tables import Instance
from server.errors import IllegalMove, NotFound, Refused
from server.instances import reads
from server.instances.lifecycle import MOVES
from server.probes.check import is_settled
from server.probes.plan import Plan, targets
from server.probes.results import results_of
from server.queue.enqueue import enqueue
from server.queue.kinds import CheckHealth
from server.words import InstanceStatus

# One that failed its check still runs, and may have come to its senses.
CHECKABLE = frozenset(
    {InstanceStatus.RUNNING, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY, InstanceStatus.FAILED}
)
LOOK_EVERY = 0.1


async def ask_for_check(database: Database, instance_id: UUID, *, defaults: Plan, by: Caller) -> datetime:
    """Have all endpoints probed. What they are found to be is written after the time that comes back."""
    asked_at = now()
    async with database.write() as session:
        instance = await reads.get_instance(session, instance_id, project_id=by.project_id)
        if instance is None:
            raise NotFound("instance", ("input", "instanceId"))
        _refuse_hopeless(instance, defaults.with_stored(instance.health_check))
        await enqueue(
            session,
            CheckHealth(instance_id=instance.id, asked_at=asked_at.timestamp()),
            project_id=instance.project_id,
            instance_id=instance.id,
        )
    return asked_at


async def await_check(
    database: Database, instance_id: UUID, *, since: datetime, defaults: Plan, timeout: timedelta
) -> bool:
    """Wait until every endpoint was probed, and probed again where it was unhealthy. False when the time is over."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        async with database.read() as session:
            instance = await session.get_one(Instance, instance_id)
            results = (await results_of(session, [instance_id]))[instance_id]
        plan = defaults.with_stored(instance.health_check)
        if results and all(result.checked_at >= since and is_settled(result, plan) for result in results):
            return True
        if time.monotonic() + LOOK_EVERY > deadline:
            return False
        await asyncio.sleep(LOOK_EVERY)


def _refuse_hopeless(instance: Instance, plan: Plan) -> None:
    status = InstanceStatus(instance.status)
    if status not in CHECKABLE or instance.novita_id is None:
        message = f"An instance that is {status} has nothing that could answer."
        raise IllegalMove("INSTANCE_NOT_RUNNING", message, current=status, allowed=sorted(MOVES[status]))
    if targets(plan, instance.ports, instance.endpoints):
        return
    if plan.target_port is not None:
        message = f"Port {plan.target_port} was to be checked, and the instance does not expose it."
        raise Refused("TARGET_PORT_NOT_EXPOSED", message)
    raise Refused("NOTHING_TO_CHECK", "The instance exposes no port that speaks http.")
