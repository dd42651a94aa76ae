"""The machines that an instance has had. Written beside every change of its row: see `transitions`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.billing import BILLED_WORDS, UNBILLED_WORDS
from server.clock import now
from server.db.database import after_commit
from server.db.pool import RawPool
from server.db.tables import Instance, Machine, MachineRow
from server.db.tables.rows import make_rows, select_rows
from server.enums import InstanceStatus
from server.observe import metrics
from server.queue.enqueue import enqueue
from server.queue.kinds import MonitorInstance, MonitorStartup, RemoveMachine
from server.spend import ledger
from server.spend.machine_times import MachineTimes

S = InstanceStatus
REMOVED = "removed"  # the provider's word
REMOVAL = ("toRemove", "removing", REMOVED)
# Why a machine ended.
DELETED = "DELETED"
GONE = "GONE_AT_PROVIDER"
REPLACED = "REPLACED"

OF_INSTANCES = f"{select_rows(MachineRow)} WHERE instance_id = ANY($1::uuid[]) ORDER BY instance_id, number"

# The number is the next one: the instance's row is locked. A machine that is seen again has its row again.
ADD = """
    INSERT INTO machine (instance_id, number, novita_id, region, product_id, billing_mode, price_e5, began_at,
                         serving_from)
    SELECT CAST(:instance_id AS uuid), coalesce(max(number), 0) + 1, CAST(:novita_id AS text), CAST(:region AS text),
           CAST(:product_id AS text), CAST(:billing_mode AS text), CAST(:price_e5 AS bigint),
           coalesce(CAST(:began_at AS timestamptz), clock_timestamp()), {serving_from}
    FROM machine WHERE instance_id = CAST(:instance_id AS uuid)
    ON CONFLICT (instance_id, novita_id) DO
"""
SERVES = ADD.format(serving_from="coalesce(CAST(:began_at AS timestamptz), clock_timestamp())")
KEEP = text(f"{SERVES} NOTHING")
ADD_SPARE = text(f"{ADD.format(serving_from='NULL')} NOTHING")
SERVE = text(f"""
    {SERVES} UPDATE SET serving_from = coalesce(machine.serving_from, excluded.serving_from), removing_from = NULL,
                     removal_sent_at = NULL, removal_accepted_at = NULL, missing_since = NULL, ended_at = NULL,
                     end_reason = NULL
""")
NEXT_NUMBER = text("""
    SELECT coalesce(max(number), 0) + 1
           + CASE WHEN CAST(:novita_id AS text) IS NULL OR bool_or(novita_id = :novita_id) THEN 0 ELSE 1 END
    FROM machine WHERE instance_id = :instance_id
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
        if before.novita_id not in (None, after.novita_id):
            after_commit(session, metrics.RELOCATIONS.add)


async def next_number(session: AsyncSession, instance: Instance) -> int:
    """The number that its next machine gets. A process of an older release may have linked one without a row."""
    found = await session.execute(NEXT_NUMBER, {"instance_id": instance.id, "novita_id": instance.novita_id})
    return found.scalar_one()


async def add_spare(session: AsyncSession, instance: Instance, facts: dict[str, Any]) -> None:
    """Write a machine that an operation has made to replace the one that serves; the instance is locked."""
    link = Link.of(instance)
    if link.novita_id is not None:  # a process of an older release may have linked it without a row
        await session.execute(KEEP, link.values(instance.id, began_at=link.began_at))
    values = {**facts, "price_e5": facts["price_per_hour_e5"], "instance_id": instance.id, "began_at": None}
    del values["price_per_hour_e5"]
    await session.execute(ADD_SPARE, values)


async def spare_of(session: AsyncSession, instance_id: UUID) -> Machine | None:
    """The machine that is to replace the one that serves."""
    found = await session.execute(select(Machine).where(Machine.instance_id == instance_id, *_is_spare()))
    return found.scalar_one_or_none()


async def retire_spares(session: AsyncSession, instance: Instance) -> None:
    """What an operation has made and does not use is removed."""
    spares = await session.execute(
        update(Machine)
        .where(Machine.instance_id == instance.id, *_is_spare())
        .values(removing_from=now())
        .returning(Machine.novita_id)
    )
    for novita_id in spares.scalars().all():
        await remove_later(session, instance, novita_id)


def _is_spare() -> tuple[ColumnElement[bool], ...]:
    return Machine.serving_from.is_(None), Machine.removing_from.is_(None), Machine.ended_at.is_(None)


async def drain(session: AsyncSession, instance: Instance, until: datetime) -> None:
    """The machine that serves is removed from then on; another one takes its place in this transaction."""
    link = Link.of(instance)
    await session.execute(KEEP, link.values(instance.id, began_at=link.began_at))
    await session.execute(
        update(Machine)
        .where(Machine.instance_id == instance.id, Machine.novita_id == link.novita_id, Machine.ended_at.is_(None))
        .values(removing_from=until)
    )


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


async def enqueue_monitor(session: AsyncSession, work: MonitorInstance | MonitorStartup, *, project_id: UUID) -> None:
    """One job per operation polls the machine until it runs."""
    key = f"monitor {work.operation_id}"
    await enqueue(session, work, project_id=project_id, instance_id=work.instance_id, unique_key=key)


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


def _is_second() -> tuple[ColumnElement[bool], ...]:
    """Of the join of machine and instance: whether another machine serves, and this one may be paid for."""
    other = or_(Instance.novita_id.is_distinct_from(Machine.novita_id), Instance.status == S.DELETED)
    return Machine.ended_at.is_(None), Machine.removal_accepted_at.is_(None), other


async def seconds(session: AsyncSession) -> list[tuple[UUID, str]]:
    """The machines, with their instances, that do not serve and whose removal is not known to be accepted."""
    found = await session.execute(
        select(Machine.instance_id, Machine.novita_id)
        .join(Instance, Instance.id == Machine.instance_id)
        .where(*_is_second())
    )
    return [(row[0], row[1]) for row in found]


async def second(session: AsyncSession, instance_id: UUID, novita_id: str) -> Machine | None:
    """One of `seconds`; None if it is none of them any more."""
    found = await session.execute(
        select(Machine)
        .join(Instance, Instance.id == Machine.instance_id)
        .where(Machine.instance_id == instance_id, Machine.novita_id == novita_id, *_is_second())
    )
    return found.scalar_one_or_none()


async def began_at(session: AsyncSession, instance: Instance) -> datetime | None:
    """When the machine that serves was made; None if a process of an older release has linked it."""
    return await session.scalar(
        select(Machine.began_at).where(Machine.instance_id == instance.id, Machine.novita_id == instance.novita_id)
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


async def end_drain(session: AsyncSession, machine: Machine) -> Machine:
    """It is removed now, not only after its drain."""
    await _set(session, machine, removing_from=now())
    return await session.get_one(Machine, (machine.instance_id, machine.number))


async def note_sent(session: AsyncSession, machine: Machine) -> None:
    """Its removal is sent now. What an earlier one has done is known, or that one counts."""
    await _set(session, machine, removal_sent_at=now())


async def note_removal(session: AsyncSession, machine: Machine, *, at: datetime) -> None:
    """The provider has accepted its removal: from then on it is not paid for."""
    await _set(session, machine, removal_accepted_at=at, missing_since=None)
    await ledger.end_machine(session, machine.instance_id, machine.novita_id, at=at)


async def note_seen(session: AsyncSession, machine: Machine, word: str, times: MachineTimes) -> None:
    """Record a look at a machine that does not serve: it may be paid for from now on, or not any more."""
    price_e5 = times.charged(machine.price_e5) or machine.price_e5
    if machine.missing_since is not None or machine.price_e5 != price_e5:
        await _set(session, machine, missing_since=None, price_e5=price_e5)
    if word in BILLED_WORDS:
        await ledger.begin_second(session, machine.instance_id, machine.novita_id, at=times.run_began_at)
        if times.run_began_at is not None:
            await ledger.begin_earlier(session, machine.instance_id, machine.novita_id, at=times.run_began_at)
    elif word in UNBILLED_WORDS:
        began_at, stopped_at = times.missed_run or (None, None)
        if began_at is not None:
            await ledger.begin_second(session, machine.instance_id, machine.novita_id, at=began_at, is_missed=True)
        removed_at = machine.removal_sent_at if word in REMOVAL else None  # its response would have ended the entry
        await ledger.end_machine(session, machine.instance_id, machine.novita_id, at=stopped_at or removed_at)
    elif times.run_began_at is not None:  # as `ledger.begin_unknown`
        began_at = times.run_began_at
        await ledger.begin_second(session, machine.instance_id, machine.novita_id, at=began_at, is_missed=True)


async def note_missing(session: AsyncSession, machine: Machine) -> timedelta:
    """Record a look that did not find it; returns how long it has been missing."""
    if machine.missing_since is not None:
        return now() - machine.missing_since
    await _set(session, machine, missing_since=now())
    return timedelta(0)


async def end_removed(session: AsyncSession, machine: Machine) -> None:
    known = (each for each in (machine.removal_sent_at, machine.missing_since) if each is not None)
    await ledger.end_machine(session, machine.instance_id, machine.novita_id, at=min(known, default=None))
    await _end(session, machine.instance_id, machine.novita_id, REPLACED)


async def of_instances(pool: RawPool, instance_ids: Sequence[UUID]) -> dict[UUID, list[MachineRow]]:
    """The machines of each instance, in order."""
    found: dict[UUID, list[MachineRow]] = {each: [] for each in instance_ids}
    for machine in make_rows(MachineRow, await pool.fetch_by_keys(OF_INSTANCES, instance_ids)):
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
