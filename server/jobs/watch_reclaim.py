"""Looking at a spot instance when the provider said that it would take it back."""

from datetime import timedelta

from server.clock import now
from server.db.tables import Instance
from server.errors import NovitaError, ProviderNotFound
from server.instances import moves
from server.instances.glimpse import Glimpse
from server.instances.outside import UP_AND_RUNNING, compare
from server.jobs.handler import Tools, growing_pause, handles
from server.jobs.provider_wait import later
from server.novita.priority import Priority
from server.queue.kinds import WatchReclaim
from server.queue.outcome import Again, Done, Outcome
from server.words import InstanceStatus

LONGEST_PAUSE = timedelta(minutes=1)
# A reclaim that has not come by then was called off without a word; from here on reconciling is watch enough.
MOST_LATE = timedelta(hours=1)


@handles(WatchReclaim)
async def watch_reclaim(work: WatchReclaim, tools: Tools) -> Outcome:
    async with tools.read() as session:
        instance = await session.get_one(Instance, work.instance_id)
    due = instance.spot_reclaim_at
    if due is None or instance.novita_id is None or InstanceStatus(instance.status) not in UP_AND_RUNNING:
        return Done()
    if due > now():
        return Again(after=due - now())  # put off
    asked_at = now()
    try:
        # Not shared with others who look: when exactly it was asked decides whether it is newer than the row.
        remote = await tools.novita.instance(instance.novita_id, priority=Priority.POLL)
        glimpse = Glimpse.of(remote, asked_at=asked_at)
    except ProviderNotFound:
        glimpse = None
    except NovitaError as error:
        return later(error, since=due, tools=tools)
    async with tools.write() as session:
        await compare(session, instance.id, glimpse, asked_at=asked_at, cause=moves.Cause())
        after = await moves.locked(session, instance.id)
    is_over = InstanceStatus(after.status) not in UP_AND_RUNNING or now() - due > MOST_LATE
    return Done() if is_over else Again(after=growing_pause(now() - due, longest=LONGEST_PAUSE))
