"""What a recovery asks of the steps of a create: another machine for an instance that has, or had, one."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Attempt, Instance, Operation
from server.instances.placement import Placement
from server.jobs.creates.make_machine import Making
from server.jobs.failures import Reason
from server.jobs.registry import JobContext
from server.market.waits import Waiting
from server.queue.kinds import OperationWork
from server.recovery.relocation import Wanted, find_places, needed_at_last


def another_machine(
    work: OperationWork,
    operation: Operation,
    instance: Instance,
    past: tuple[Attempt, ...],
    wanted: Wanted,
    ctx: JobContext,
    *,
    older: frozenset[tuple[str, str, str]],
    fail: Callable[[AsyncSession, Reason], Awaitable[None]],
    waiting: Waiting | None = None,
) -> Making:
    """`older`: the offers for which older operations of the project wait; `waiting`: if it may wait itself."""

    async def place() -> Placement:
        return await find_places(ctx.catalog, instance, wanted)

    return Making(
        work,
        instance,
        past,
        operation.created_at,
        create=str(operation.id),
        place=place,
        fail=fail,
        requirements=needed_at_last(instance, wanted),
        waiting=waiting,
        wanted=older,
        within=wanted.within,
    )
