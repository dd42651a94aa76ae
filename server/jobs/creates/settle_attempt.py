"""Settles a create attempt whose operation has ended while the provider's response was missing.

The machine, if there is one, is billed. So this job never gives up: it looks until the provider shows the machine,
which is then linked to its instance or removed, or until the machine has been missing for long enough.
"""

from datetime import timedelta

import structlog

from server.clock import now
from server.db.tables import Attempt
from server.enums import LIVE_ATTEMPT, AttemptStatus, OperationKind
from server.errors import NovitaError
from server.instances import attempts, operations
from server.instances.provider.settle import end_absent, link_found
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.unlinked import Origin, UnlinkedMachine, remove_orphan
from server.jobs.creates.make_machine import unresolved_timeout
from server.jobs.registry import JobContext, growing_pause, handles
from server.novita.models import RemoteInstance
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import SettleAttempt

log = structlog.get_logger(__name__)

PAUSE_MAX = timedelta(minutes=1)
# The jobs of these operations settle the attempt themselves.
SETTLING = (OperationKind.CREATE, OperationKind.DELETE)


@handles(SettleAttempt)
async def settle_attempt(work: SettleAttempt, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        attempt = await session.get(Attempt, work.attempt_id)
        if attempt is None or attempt.status not in LIVE_ATTEMPT:
            return Done()
        operation = await operations.open_operation(session, attempt.instance_id)
    waited = attempts.age(attempt)
    if operation is not None and (operation.kind in SETTLING or operation.id == attempt.operation_id):
        return Done()
    try:
        remote = await ctx.services.markers.find(str(attempt.marker))
        if remote is None:
            return await _not_found(attempt, waited, ctx)
        await _found(attempt, remote, ctx)
    except NovitaError as error:
        log.warning("attempt.in_doubt", marker=attempt.marker, code=error.code, error=error.message)
        return Again(after=growing_pause(waited, longest=PAUSE_MAX))
    return Done()


async def _found(attempt: Attempt, remote: RemoteInstance, ctx: JobContext) -> None:
    async with ctx.write() as session:
        if await link_found(session, attempt, remote):
            return
    snapshot = ProviderSnapshot.of(remote, asked_at=now())
    orphan = UnlinkedMachine(snapshot, Origin.ORPHAN, instance_id=attempt.instance_id)
    await remove_orphan(ctx.services.database, ctx.novita, orphan)
    async with ctx.write() as session:
        await attempts.end(session, attempt, AttemptStatus.CREATED, novita_id=remote.id)


async def _not_found(attempt: Attempt, waited: timedelta, ctx: JobContext) -> Outcome:
    left = unresolved_timeout(ctx) - waited
    if left > timedelta(0):
        return Again(after=min(left, growing_pause(waited, longest=PAUSE_MAX)))
    async with ctx.write() as session:
        await end_absent(session, attempt)
    return Done()
