"""An incident: from the reclaim or loss of a machine until its instance is READY again, or recovery has ended.

Its beginning and end are written with the change of status that they follow from, and so is the job of its recovery.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, InstanceLike
from server.enums import InstanceStatus, RecoveryTrigger
from server.instances.recovery.spec import read
from server.queue.control import make_keys_due_now
from server.queue.enqueue import enqueue
from server.queue.kinds import RecoverInstance

S = InstanceStatus
RECOVERING = "RECOVERING"
GAVE_UP = "RECOVERY_GAVE_UP"
RECLAIMED, GONE = "SPOT_RECLAIMED", "GONE_AT_PROVIDER"
DOWN = frozenset({S.EXITED, S.FAILED})
# A machine that was stopped on purpose is not started again because it is gone.
MEANT_TO_RUN = frozenset({S.STARTING, S.RUNNING, S.HEALTH_CHECKING, S.READY, S.RESTARTING, S.MIGRATING})
RESET_AFTER = timedelta(hours=6)  # READY for this long, an instance has recovered
TRIES_PER_DAY = 10
PAUSE_MAX = timedelta(minutes=30)
CLOCK_SLACK = timedelta(minutes=1)  # by which the clocks of two processes may differ


def is_open(row: InstanceLike) -> bool:
    """Whether it is being recovered."""
    state = row.recovery_state
    return row.recovery is not None and state is not None and "since" in state and "ended" not in state


def ended(row: Instance, why: str) -> dict[str, Any]:
    """The state after an end that a caller or we have decided: no recovery until the next start."""
    return {**(row.recovery_state or {}), "ended": why}


def closed(row: Instance) -> dict[str, Any] | None:
    """The state without an incident: what is left are the times of attempts."""
    tries = (row.recovery_state or {}).get("tries")
    return {"tries": tries} if tries else None


def changes(row: Instance, to: InstanceStatus, values: Mapping[str, Any], *, at: datetime) -> dict[str, Any]:
    """The columns to write with a transition of a locked row."""
    if row.recovery is None or "recovery_state" in values:
        return {}
    if to is S.READY:
        return {} if row.recovery_state is None else {"recovery_state": closed(row)}
    if to is S.DELETING:
        return {"recovery_state": None}
    if to not in DOWN:
        return {}
    if is_open(row):
        return {} if values.get("status_reason") == "MACHINE_MAY_EXIST" else {"status_reason": RECOVERING}
    trigger = _trigger(row, to, values)
    if trigger is None or trigger not in read(row.recovery).on:
        return {}
    was_stable = row.ready_at is not None and at - row.ready_at >= RESET_AFTER
    tries: list[str] = [] if was_stable else list((row.recovery_state or {}).get("tries", ()))
    return {"recovery_state": {"since": at.isoformat(), "trigger": trigger, "tries": tries, "now": 0}}


def _trigger(row: Instance, to: InstanceStatus, values: Mapping[str, Any]) -> RecoveryTrigger | None:
    reason = values.get("failure_code") if to is S.FAILED else values.get("status_reason")
    was_reclaimed = row.status == S.STOPPING and row.status_reason == RECLAIMED
    if row.status not in MEANT_TO_RUN and not was_reclaimed:
        return None
    return {RECLAIMED: RecoveryTrigger.RECLAIM, GONE: RecoveryTrigger.LOSS}.get(str(reason))


async def keep_job(session: AsyncSession, row: Instance) -> None:
    """While an incident is open, its job exists; at most one. It finds out when it has something to do."""
    if row.status in DOWN and is_open(row):
        work, key = job_of(row)
        await enqueue(session, work, project_id=row.project_id, instance_id=row.id, unique_key=key)
        await make_keys_due_now(session, [key])


def job_of(row: Instance) -> tuple[RecoverInstance, str]:
    """The job of its recovery, and the key of which there is one."""
    return RecoverInstance(row.id), f"recover {row.id}"


def tried(row: Instance, *, at: datetime) -> dict[str, Any]:
    """The state with one more attempt."""
    state = row.recovery_state or {}
    tries = [*state.get("tries", []), at.isoformat()][-TRIES_PER_DAY:]
    return {**state, "tries": tries, "now": state.get("now", 0) + 1}


def due_at(row: Instance) -> datetime:
    """When the next attempt may begin: after 1, 2, 4 ... 30 minutes, at most ten times in 24 hours."""
    # What is ahead of now was written before the clock was set back.
    moment = now() + CLOCK_SLACK
    tries = [datetime.fromisoformat(each) for each in (row.recovery_state or {}).get("tries", [])]
    tries = [each for each in tries if each <= moment]
    due = row.status_since
    if due > moment:
        return now()
    if tries:
        due += min(timedelta(minutes=2 ** (len(tries) - 1)), PAUSE_MAX)
    return max(due, tries[0] + timedelta(days=1)) if len(tries) == TRIES_PER_DAY else due


def gives_up_at(row: InstanceLike) -> datetime:
    state = row.recovery_state or {}
    return datetime.fromisoformat(state["since"]) + read(row.recovery or {}).give_up_after
