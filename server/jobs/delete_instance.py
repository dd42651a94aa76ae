"""Removing an instance at the provider, and saying so only once it is gone there."""

from datetime import timedelta

from server.clock import now
from server.db.tables import Attempt, Instance
from server.errors import NovitaError, ProviderNotFound
from server.instances import attempts, moves, operations
from server.instances.observed import Seen, facts, seen
from server.jobs.create_instance import longest_doubt, look_up
from server.jobs.handler import Tools, fail_with_the_job, growing_pause, handles
from server.jobs.provider_wait import later
from server.queue.kinds import DeleteInstance
from server.queue.outcome import Again, Done, Outcome
from server.words import AttemptStatus, InstanceStatus, OperationPhase, OperationStatus


@handles(DeleteInstance, failed=fail_with_the_job)
async def delete_instance(work: DeleteInstance, tools: Tools) -> Outcome:
    async with tools.write() as session:
        operation = await operations.enter(session, work.operation_id, OperationPhase.DELETING)
        if operation is None:
            return Done()
        instance = await moves.locked(session, work.instance_id)
        live = await attempts.live_of_instance(session, work.instance_id)
        doubted_for = timedelta(0) if live is None else await attempts.age(session, live)
    since = operation.created_at
    try:
        if live is not None:
            # A create was under way when the delete came: what it made, if anything, has to go as well.
            outcome = await _settle(instance, live, doubted_for, tools)
            if outcome is not None:
                return outcome
            return Again(after=timedelta(0))
        if instance.novita_id is not None and not await _is_gone(instance.novita_id, instance, work, tools):
            return Again(after=growing_pause(now() - since, longest=timedelta(seconds=10)))
    except NovitaError as error:
        return later(error, since=since, tools=tools)
    async with tools.write() as session:
        if await operations.still_open(session, work.operation_id) is not None:
            cause = moves.Cause(work.operation_id, operation.requested_by)
            await moves.move(session, work.instance_id, InstanceStatus.DELETED, cause=cause)
            await operations.finish(session, work.operation_id, OperationStatus.SUCCEEDED)
    return Done()


async def _is_gone(novita_id: str, instance: Instance, work: DeleteInstance, tools: Tools) -> bool:
    """Ask for the removal, then look. Asking again is harmless: gone is what was wanted."""
    try:
        remote = await tools.novita.instance(novita_id)
        if seen(remote) is Seen.GONE:
            return True
        if seen(remote) is not Seen.GOING_AWAY:
            await tools.novita.delete_instance(novita_id)
            remote = await tools.novita.instance(novita_id)
    except ProviderNotFound:
        return True
    if seen(remote) is Seen.GONE:
        return True
    async with tools.write() as session:
        cause = moves.Cause(work.operation_id)
        await moves.note(session, instance.id, cause=cause, observed_at=now(), **facts(remote))
    return False


async def _settle(instance: Instance, attempt: Attempt, waited: timedelta, tools: Tools) -> Outcome | None:
    """None once it is known what the attempt made; else when to look again."""
    found = await look_up(attempt, tools)
    if found is None and (left := longest_doubt(tools) - waited) > timedelta(0):
        return Again(after=min(left, timedelta(seconds=2)))
    async with tools.write() as session:
        if found is None:
            await attempts.end(session, attempt, AttemptStatus.ABSENT)
        elif await attempts.end(session, attempt, AttemptStatus.CREATED, novita_id=found):
            cause = moves.Cause(attempt.operation_id)
            await moves.note(session, instance.id, cause=cause, novita_id=found)
    return None
