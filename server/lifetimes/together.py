"""Takes the steps of several lifetimes in one transaction: many ends that are due at once must not wait for each other.

Only the two steps that nearly all are: an announcement, and the first try of a stop that nothing stands in the way of.
Everything else is taken alone, by `end.take_step`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from server.batching import GroupCommit
from server.db.database import Database
from server.db.outages import is_database_unavailable
from server.db.tables import Instance
from server.enums import OperationKind, OperationReason, StepReason
from server.events.event import EventType
from server.instances import transitions
from server.instances.commands.change_many import Change, lock_free, with_open_operation, write_many
from server.instances.limits import arming
from server.instances.limits.steps import UNTOLD, LifetimeStep, State, step_at, warnings_at
from server.instances.status import VERBS
from server.lifetimes.end import allowed, database_time, shown
from server.queue.claim import Claim, lock_claims, lost_claim
from server.queue.control import add_kept_jobs, release_keys

log = structlog.get_logger(__name__)

BATCH_MAX = 64
BATCHES_AT_ONCE = 2
PLAIN_REASONS = frozenset({StepReason.MAX_DURATION, StepReason.DEADLINE, StepReason.HEARTBEAT})


@dataclass(frozen=True, slots=True)
class DueStep:
    """The run of a job whose instance may have a step to take."""

    claim: Claim
    instance_id: UUID


class StepBatcher:
    """One per process."""

    def __init__(self, database: Database, *, retry: timedelta) -> None:
        self._database = database
        self._retry = retry
        self._writes: GroupCommit[DueStep, bool] = GroupCommit(self._take, largest=BATCH_MAX, at_once=BATCHES_AT_ONCE)

    async def take(self, claim: Claim, instance_id: UUID) -> bool:
        """False if the step has to be taken alone. Raises LostClaim."""
        return await self._writes.add(DueStep(claim, instance_id))

    async def _take(self, steps: Sequence[DueStep]) -> list[bool | Exception]:
        try:
            async with self._database.write() as session:
                return await self._write(session, steps)
        except SQLAlchemyError as error:
            if is_database_unavailable(error):
                raise
            # One of them can't be written. Alone, it fails alone.
            log.warning("lifetime.batch_failed", error=type(error).__name__, steps=len(steps))
            return [False] * len(steps)

    async def _write(self, session: AsyncSession, steps: Sequence[DueStep]) -> list[bool | Exception]:
        held = await lock_claims(session, [each.claim for each in steps])
        # A job without its key was killed after its commit: its step was taken.
        waiting = [each for each in steps if held.get(each.claim.job_id) == arming.job_key(each.instance_id)]
        ids = [each.instance_id for each in waiting]
        instances = await lock_free(session, ids) if ids else {}
        changes: dict[UUID, Change] = {}
        if instances:
            moment = await database_time(session)
            busy = await with_open_operation(session, ids)
            for instance in instances.values():
                try:
                    change = _change(instance, moment, is_busy=instance.id in busy, retry=self._retry)
                except Exception as error:  # noqa: BLE001 - a row that can't be read fails alone, in its own run
                    log.warning("lifetime.unreadable", instance_id=instance.id, error=type(error).__name__)
                    continue
                if change is not None:
                    changes[instance.id] = change
        if changes:
            await release_keys(session, [each.claim.job_id for each in waiting if each.instance_id in changes])
            await write_many(session, list(changes.values()))
            await add_kept_jobs(session, list(_next_jobs(changes.values())))
        return [_result(each, held, changes) for each in steps]


def _result(step: DueStep, held: dict[int, str | None], changes: dict[UUID, Change]) -> bool | Exception:
    if step.claim.job_id not in held:
        return lost_claim()
    return held[step.claim.job_id] is None or step.instance_id in changes


def _next_jobs(changes: Iterable[Change]) -> Iterable[arming.KeptJob]:
    jobs = (arming.kept_job(change.after) for change in changes)
    return (job for job in jobs if job is not None)


def _change(instance: Instance, moment: datetime, *, is_busy: bool, retry: timedelta) -> Change | None:
    """What the step changes; None if it is not one of the two."""
    step = step_at(instance, moment)
    state = State(instance.lifetime_state)
    if step is None or instance.lifetime is None or state.time("due") is not None:
        return None
    if step.at > moment:
        return _warning(instance, state, moment)
    is_plain = step.reason in PLAIN_REASONS and step.action is OperationKind.STOP
    if not is_plain or is_busy or step.action not in allowed(instance):
        return None
    values = state.with_values(due=step.at, retry_at=moment + retry, read_at=None, **UNTOLD)
    change = Change.of_verb(
        VERBS[step.action],
        instance,
        reason=OperationReason.LIFETIME,
        fields={"status_reason": str(step.reason), "lifetime_state": values},
    )
    if change is not None:
        change.events.append(_event(EventType.LIFETIME_ENDED, change.after, step, outcome="ACCEPTED"))
    return change


def _warning(instance: Instance, state: State, moment: datetime) -> Change | None:
    steps, told = warnings_at(instance, moment)
    if not steps:
        return None
    change = Change.silent(instance, {"lifetime_state": state.with_values(**told)})
    change.events.extend(_event(EventType.LIFETIME_ENDING, change.after, each) for each in steps)
    return change


def _event(type: EventType, instance: Instance, step: LifetimeStep, **more: str) -> transitions.EventRows:
    values = shown(at=step.at, action=step.action, reason=step.reason, **more)
    return transitions.named_event(type, instance, cause=transitions.Cause(), values=values)
