"""Starts of a machine that wait for capacity: what comes before the provider is called, and after it has refused."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance
from server.errors import BudgetExceeded, InsufficientResource
from server.events.event import EventType
from server.instances import operations, transitions
from server.jobs.failures import Reason
from server.jobs.market.waiting import admit_again, expire, fall_asleep, sleep_again
from server.jobs.registry import JobContext
from server.market import waits
from server.market.waits import Needs, Waiting
from server.queue.handler import Done
from server.queue.kinds import OperationWork
from server.spend.refusals import QuotaExceeded

Fail = Callable[[AsyncSession, Reason], Awaitable[None]]
NO_STOCK = InsufficientResource.code


async def wake_up(work: OperationWork, ctx: JobContext, fail: Fail) -> Waiting | Done | None:
    """At the beginning of each run of a start: whether it may wait, and if it was woken, whether it may go on."""
    try:
        async with ctx.write() as session:
            operation = await operations.lock_open(session, work.operation_id)
            waiting = None if operation is None else await waits.load(session, operation)
            if operation is None or waiting is None or waiting.row is None:
                return Done() if operation is None else waiting
            if not waiting.is_awake_in(ctx.claim.job_id):
                return Done()  # it sleeps, or has another job
            if operation.asked_at is not None or operation.reserved_price_e5 is not None:
                return waiting  # another run of the same wake-up
            if waiting.is_over:
                await fail(session, await expire(session, operation))
                return Done()
            instance = await transitions.lock(session, work.instance_id)
            await admit_again(session, operation, instance, instance.price_per_hour_e5 or 0)
            if waiting.row.offer_region is not None:
                values = {"region": waiting.row.offer_region, "billingMode": str(waiting.row.offer_mode)}
                cause = transitions.Cause(operation.id, operation.requested_by)
                await transitions.record_event(session, EventType.WAIT_MATCHED, instance, cause=cause, values=values)
            return waiting
    except (BudgetExceeded, QuotaExceeded) as refused:
        blocked_by = "BUDGET" if isinstance(refused, BudgetExceeded) else "QUOTA"
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        if operation is not None:
            await sleep_again(session, operation, blocked_by=blocked_by)
    return Done()


async def wait_for_stock(work: OperationWork, waiting: Waiting, reason: Reason, ctx: JobContext, fail: Fail) -> Done:
    """The provider has refused to start the machine for lack of stock: wait until its product is offered there."""
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        if operation is None:
            return Done()
        instance = await transitions.lock(session, work.instance_id)
        if waiting.is_over:
            await fail(session, await expire(session, operation))
        elif waiting.row is None:
            await fall_asleep(session, work, operation, needs_of_machine(instance), waiting, by_host=True)
        else:
            await sleep_again(session, operation, refusal=reason, by_host=True)
    return Done()


def needs_of_machine(instance: Instance) -> Needs:
    """Its own product in its own region, at any price: it is what was agreed on."""
    return Needs(
        product_name=instance.product_name,
        gpu_count=instance.gpu_count,
        regions=[str(instance.region)],
        modes=[str(instance.billing_mode)],
        product_id=instance.product_id,
    )
