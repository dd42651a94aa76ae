"""Quotas: how many instances and GPUs, at which price per hour, a project, a label or a token may have at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id
from server.db.database import Fetch
from server.db.pool import RawPool
from server.db.tables import Quota, QuotaLike, QuotaRow
from server.db.tables.rows import make_rows, select_rows
from server.errors import Invalid, Problem, Refused
from server.spend.scope import is_label, is_shown, lock_project, refuse_foreign_token, scope_values, to_json
from server.spend.usage import MICROS_PER_E5, PAYER, SCOPE
from server.spend.watch import wake

QUOTAS_MAX = 100  # per project, without those of tokens: admission reads those of its scope
COUNT_MAX, PRICE_MAX_E5 = 1_000_000, 10**12
INVALID_QUOTA = "INVALID_QUOTA"
BY_IDS = f"{select_rows(QuotaRow)} WHERE id = ANY($1::uuid[]) AND project_id = $2"


@dataclass(frozen=True, slots=True)
class QuotaDraft:
    """Of the whole project, of a label, or of a token: at most one of them. Without any maximum there is no quota."""

    max_instances: int | None = None
    max_gpus: int | None = None
    max_price_e5: int | None = None
    label: tuple[str, str] | None = None
    token_id: UUID | None = None

    @property
    def is_empty(self) -> bool:
        return self.max_instances is None and self.max_gpus is None and self.max_price_e5 is None

    def problems(self) -> Iterator[Problem]:
        for name, value in (("maxInstances", self.max_instances), ("maxGpus", self.max_gpus)):
            if value is not None and not 0 <= value <= COUNT_MAX:
                yield _problem(f"It must be 0 to {COUNT_MAX}.", name)
        if self.max_price_e5 is not None and not 0 <= self.max_price_e5 <= PRICE_MAX_E5:
            yield _problem("It must not be below 0.", "maxPricePerHour")
        if self.label is not None and not is_label(*self.label):
            yield _problem("This can't be a label.", "scope", "label")


@dataclass(slots=True)
class QuotaUsage:
    """Of machines that are paid for, and of accepted creates and starts whose machines are not paid for yet."""

    instances: int = 0
    gpus: int = 0
    price_e5: int = 0


async def set_quota(session: AsyncSession, draft: QuotaDraft, *, project_id: UUID) -> Quota | None:
    """Replace the quota of a scope, or remove it. What runs already stays."""
    problems = list(draft.problems())
    if problems:
        raise Invalid(problems)
    await lock_project(session, project_id)
    await refuse_foreign_token(session, draft.token_id, project_id=project_id)
    key, value = draft.label or (None, None)
    scope = (
        Quota.project_id == project_id,
        Quota.label_key.is_not_distinct_from(key),
        Quota.label_value.is_not_distinct_from(value),
        Quota.token_id.is_not_distinct_from(draft.token_id),
    )
    quota = (await session.execute(select(Quota).where(*scope).with_for_update())).scalar_one_or_none()
    if draft.is_empty:
        if quota is not None:
            await session.delete(quota)
            await session.flush()
            await wake(session, project_id)  # what it blocked may go on
        return None
    if quota is None:
        await _refuse_too_many(session, draft, project_id)
        quota = Quota(id=new_id(), project_id=project_id, label_key=key, label_value=value, token_id=draft.token_id)
        session.add(quota)
    quota.max_instances, quota.max_gpus, quota.max_price_e5 = draft.max_instances, draft.max_gpus, draft.max_price_e5
    await session.flush()
    await session.refresh(quota)
    await wake(session, project_id)
    return quota


async def _refuse_too_many(session: AsyncSession, draft: QuotaDraft, project_id: UUID) -> None:
    """Each token has one at most."""
    if draft.token_id is not None:
        return
    count = await session.scalar(select(func.count()).where(Quota.project_id == project_id, Quota.token_id.is_(None)))
    if (count or 0) >= QUOTAS_MAX:
        raise Refused("TOO_MANY_QUOTAS", f"A project has at most {QUOTAS_MAX} quotas; remove one first.")


async def get_quotas(pool: RawPool, ids: Sequence[UUID], *, by: Caller) -> dict[UUID, QuotaRow]:
    rows = make_rows(QuotaRow, await pool.fetch_by_keys(BY_IDS, ids, by.project_id))
    return {row.id: row for row in rows if is_shown(row, by)}


USAGE = f"""
    SELECT quota.id, paid.instances + coming.instances, paid.gpus + coming.gpus, paid.price + coming.price
    FROM jsonb_to_recordset($1::jsonb) AS quota (id uuid, project_id uuid, label jsonb, token_id uuid), LATERAL (
        SELECT count(DISTINCT instance.id) AS instances, coalesce(sum(gpu_count), 0) AS gpus,
               coalesce(sum(price_e5), 0) AS price
        FROM cost_entry AS entry JOIN instance ON instance.id = entry.instance_id
        WHERE {SCOPE.format("entry", "entry.labels", "entry.token_id", "quota")}
          AND NOT is_summed AND entry.ended_at IS NULL
    ) AS paid, LATERAL (
        SELECT count(*) FILTER (WHERE NOT operation.wanted ? 'replaces') AS instances,
               coalesce(sum(gpu_count), 0) AS gpus, coalesce(sum(reserved_price_e5), 0) AS price
        FROM operation JOIN instance ON instance.id = operation.instance_id
        WHERE {SCOPE.format("operation", "instance.labels", PAYER, "quota")}
          AND operation.status IN ('QUEUED', 'RUNNING') AND reserved_price_e5 IS NOT NULL
          AND NOT EXISTS (SELECT FROM cost_entry WHERE instance_id = instance.id AND ended_at IS NULL
                                                   AND machine IS DISTINCT FROM operation.wanted ->> 'replaces')
    ) AS coming
"""


async def read_quota_usage(fetch: Fetch, quotas: Sequence[QuotaLike]) -> dict[UUID, QuotaUsage]:
    """All quotas in one statement."""
    rows = await fetch(USAGE, to_json(map(scope_values, quotas)))
    return {row[0]: QuotaUsage(int(row[1]), int(row[2]), int(row[3])) for row in rows}


def maxima(
    quota: QuotaLike, usage: QuotaUsage, *, instances: int, gpus: int, price_e5: int
) -> Iterator[tuple[str, int, int, int]]:
    """Name, use, need of one more machine, and maximum of each limit that the quota has; prices in micros."""
    if quota.max_instances is not None:
        yield "maxInstances", usage.instances, instances, quota.max_instances
    if quota.max_gpus is not None:
        yield "maxGpus", usage.gpus, gpus, quota.max_gpus
    if quota.max_price_e5 is not None:
        used, needed, allowed = (each * MICROS_PER_E5 for each in (usage.price_e5, price_e5, quota.max_price_e5))
        yield "maxPricePerHour", used, needed, allowed


def _problem(message: str, *path: str) -> Problem:
    return Problem(INVALID_QUOTA, message, ("input", *path))
