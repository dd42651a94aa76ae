"""A notice: until its spot machine is reclaimed, an instance may get another one that takes its place.

What was tried is in `recovery_state`, by the time that the provider has named: another time is another notice.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance
from server.enums import RecoveryTrigger
from server.instances.recovery.incident import CLOCK_SLACK, PAUSE_MAX, job_of
from server.instances.recovery.spec import read
from server.instances.status import UP
from server.queue.control import make_keys_due_now
from server.queue.enqueue import enqueue
from server.volumes.attach import can_share


def is_open(row: Instance) -> bool:
    """Whether its machine is announced to be reclaimed, and is to be replaced before."""
    at = row.spot_reclaim_at
    if row.recovery is None or at is None or row.novita_id is None or row.status not in UP or at <= now():
        return False
    if row.volumes and not can_share(row.region or ""):
        return False
    wanted = read(row.recovery)
    is_wanted = wanted.replace_before_reclaim and RecoveryTrigger.RECLAIM in wanted.on
    return is_wanted and "ended" not in _tried(row)


def due_at(row: Instance) -> datetime:
    """When the next machine may be made: at once, then after 1, 2, 4 ... 30 minutes."""
    tried = _tried(row)
    if not tried:
        return now()
    last = datetime.fromisoformat(tried["last"])
    if last > now() + CLOCK_SLACK:  # written before the clock was set back
        return now()
    return last + min(timedelta(minutes=2 ** (tried["many"] - 1)), PAUSE_MAX)


def tried(row: Instance, **values: Any) -> dict[str, Any]:
    """The state of recovery with one more try."""
    if row.spot_reclaim_at is None:
        raise ValueError("there is no notice")
    of = {"of": row.spot_reclaim_at.isoformat(), "many": _tried(row).get("many", 0) + 1, "last": now().isoformat()}
    return {**(row.recovery_state or {}), "notice": {**of, **values}}


def ended(row: Instance) -> dict[str, Any]:
    """The state after a caller has cancelled it: no other machine before this reclaim."""
    return {**(row.recovery_state or {}), "notice": {**_tried(row), "ended": True}}


async def keep_job(session: AsyncSession, row: Instance, *, is_new: bool = False) -> None:
    """While it is open, its job exists; at most one. That of an earlier incident may be far from due."""
    if is_open(row):
        work, key = job_of(row)
        await enqueue(session, work, project_id=row.project_id, instance_id=row.id, unique_key=key)
        if is_new:
            await make_keys_due_now(session, [key])


def _tried(row: Instance) -> dict[str, Any]:
    """What was tried after this notice."""
    noted: dict[str, Any] = (row.recovery_state or {}).get("notice", {})
    is_same = row.spot_reclaim_at is not None and noted.get("of") == row.spot_reclaim_at.isoformat()
    return noted if is_same else {}
