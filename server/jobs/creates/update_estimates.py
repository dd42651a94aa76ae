"""Corrects the estimates of creates that wait in line: it moves faster or slower than when they were accepted."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from server.enums import InstanceStatus
from server.instances import operations, transitions
from server.instances.create_line import Estimate
from server.jobs.registry import JobContext, handles
from server.queue.handler import Done, Outcome
from server.queue.kinds import UpdateEstimates

BATCH_SIZE = 20  # a transaction holds the rows of so many for a few milliseconds each


@handles(UpdateEstimates)
async def update_estimates(_work: UpdateEstimates, ctx: JobContext) -> Outcome:
    wrong = await ctx.services.line.corrections(usual=ctx.settings.estimated_ready_time)
    for start in range(0, len(wrong), BATCH_SIZE):
        async with ctx.write() as session:
            await _write(session, wrong[start : start + BATCH_SIZE])
    return Done()


async def _write(session: AsyncSession, estimates: Sequence[Estimate]) -> None:
    for each in estimates:
        instance = await transitions.try_lock(session, each.instance_id)
        if instance is None or instance.status != InstanceStatus.CREATING or instance.novita_id is not None:
            continue  # being changed right now, or begun
        operation = await operations.set_estimate(session, each.operation_id, each.ready_at)
        if operation is not None:
            cause = transitions.Cause(operation.id, operation.requested_by)
            await transitions.update(session, instance.id, cause=cause, estimated_ready_at=each.ready_at)
