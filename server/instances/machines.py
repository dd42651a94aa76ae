"""The machines that an instance has had. Written beside every change of its row: see `transitions`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Machine
from server.enums import InstanceStatus
from server.queue.enqueue import enqueue
from server.queue.kinds import RemoveMachine

S = InstanceStatus
REMOVED = "removed"  # the provider's word
# Why a machine ended.
DELETED = "DELETED"
GONE = "GONE_AT_PROVIDER"
REPLACED = "REPLACED"

# The number is the next one: the instance's row is locked. A machine that is seen again has its row again.
ADD = """
    INSERT INTO machine (instance_id, number, novita_id, region, product_id, billing_mode, price_e5, began_at,
                         serving_from)
    SELECT CAST(:instance_id AS uuid), coalesce(max(number), 0) + 1, CAST(:novita_id AS text), CAST(:region AS text),
           CAST(:product_id AS text), CAST(:billing_mode AS text), CAST(:price_e5 AS bigint),
           coalesce(CAST(:began_at AS timestamptz), clock_timestamp()),
           coalesce(CAST(:began_at AS timestamptz), clock_timestamp())
    FROM machine WHERE instance_id = CAST(:instance_id AS uuid)
    ON CONFLICT (instance_id, novita_id) DO
"""
KEEP = text(f"{ADD} NOTHING")
SERVE = text(f"""
    {ADD} UPDATE SET serving_from = coalesce(machine.serving_from, excluded.serving_from), removing_from = NULL,
                     removal_accepted_at = NULL, missing_since = NULL, ended_at = NULL, end_reason = NULL
""")
END = text("""
    UPDATE machine SET ended_at = clock_timestamp(), end_reason = :reason
    WHERE instance_id = :instance_id AND novita_id = :novita_id AND ended_at IS NULL
""")
RETIRE = text("""
    UPDATE machine SET removing_from = coalesce(removing_from, clock_timestamp())
    WHERE instance_id = :instance_id AND novita_id = :novita_id AND ended_at IS NULL
    RETURNING novita_id
""")


@dataclass(frozen=True, slots=True)
class Link:
    """The columns of an instance that say which machine serves it."""

    novita_id: str | None
    is_over: bool
    facts: tuple[Any, ...]
    began_at: datetime | None

    @classmethod
    def of(cls, row: Instance) -> "Link":
        is_over = row.status == S.DELETED or row.novita_status == REMOVED
        facts = (row.region, row.product_id, row.billing_mode, row.price_per_hour_e5)
        return cls(row.novita_id, is_over, facts, row.running_at or row.created_at)

    def values(self, instance_id: UUID, *, began_at: datetime | None = None) -> dict[str, Any]:
        names = ("region", "product_id", "billing_mode", "price_e5")
        facts = dict(zip(names, self.facts, strict=True))
        return {"instance_id": instance_id, "novita_id": self.novita_id, "began_at": began_at, **facts}


NO_LINK = Link(None, False, (), None)


async def follow(session: AsyncSession, row: Instance, *, before: Link) -> None:
    """Write what a change of a locked instance means for its machines; `before` is its link before the change.

    No statement if it means nothing.
    """
    after = Link.of(row)
    if (after.novita_id, after.is_over) == (before.novita_id, before.is_over):
        return
    if before.novita_id is not None and before.novita_id != after.novita_id:
        # A process of an older release may have linked it without a row.
        await session.execute(KEEP, before.values(row.id, began_at=before.began_at))
        await (_end(session, row.id, before.novita_id, GONE) if before.is_over else retire(session, row, before))
    if after.novita_id is None:
        return
    if after.is_over:
        is_deleted = row.status in (S.DELETING, S.DELETED)
        await _end(session, row.id, after.novita_id, DELETED if is_deleted else GONE)
    else:
        await session.execute(SERVE, after.values(row.id))


async def retire(session: AsyncSession, instance: Instance, link: Link) -> None:
    """A machine that no longer serves is removed, by a job that never gives up."""
    where = {"instance_id": instance.id, "novita_id": link.novita_id}
    if (await session.execute(RETIRE, where)).first() is not None:
        await remove_later(session, instance, str(link.novita_id))


async def remove_later(session: AsyncSession, instance: Instance, novita_id: str) -> None:
    """At most one job per machine waits."""
    await enqueue(
        session,
        RemoveMachine(instance.id, novita_id),
        project_id=instance.project_id,
        instance_id=instance.id,
        unique_key=f"remove {novita_id}",
    )


async def to_remove(session: AsyncSession, instance_id: UUID, novita_id: str) -> Machine | None:
    """None if it is gone, or serves."""
    found = await session.execute(
        select(Machine)
        .join(Instance, Instance.id == Machine.instance_id)
        .where(Machine.instance_id == instance_id, Machine.novita_id == novita_id, is_leaving())
    )
    return found.scalar_one_or_none()


def is_leaving() -> ColumnElement[bool]:
    """Of the join of machine and instance: whether the machine is to be removed."""
    return and_(
        Machine.removing_from.is_not(None),
        Machine.ended_at.is_(None),
        or_(Instance.novita_id.is_distinct_from(Machine.novita_id), Instance.status == S.DELETED),
    )


async def is_one_leaving(session: AsyncSession, instance_id: UUID) -> bool:
    """Whether a former machine of the instance is still there."""
    found = await session.execute(
        select(Machine.number)
        .join(Instance, Instance.id == Machine.instance_id)
        .where(Machine.instance_id == instance_id, is_leaving())
        .limit(1)
    )
    return found.first() is not None


async def note_removal(session: AsyncSession, machine: Machine) -> None:
    """The provider has accepted its removal."""
    await _set(session, machine, removal_accepted_at=now(), missing_since=None)


async def note_missing(session: AsyncSession, machine: Machine) -> timedelta:
    """Record a look that did not find it; returns how long it has been missing."""
    if machine.missing_since is not None:
        return now() - machine.missing_since
    await _set(session, machine, missing_since=now())
    return timedelta(0)


async def end_removed(session: AsyncSession, machine: Machine) -> None:
    await _end(session, machine.instance_id, machine.novita_id, REPLACED)


async def of_instances(session: AsyncSession, instance_ids: Sequence[UUID]) -> dict[UUID, list[Machine]]:
    """The machines of each instance, in order."""
    rows = await session.execute(
        select(Machine).where(Machine.instance_id.in_(instance_ids)).order_by(Machine.instance_id, Machine.number)
    )
    found: dict[UUID, list[Machine]] = {each: [] for each in instance_ids}
    for machine in rows.scalars():
        found[machine.instance_id].append(machine)
    return found


async def _end(session: AsyncSession, instance_id: UUID, novita_id: str, reason: str) -> None:
    await session.execute(END, {"instance_id": instance_id, "novita_id": novita_id, "reason": reason})


async def _set(session: AsyncSession, machine: Machine, **values: Any) -> None:
    await session.execute(
        update(Machine)
        .where(Machine.instance_id == machine.instance_id, Machine.number == machine.number)
        .values(**values)
    )
