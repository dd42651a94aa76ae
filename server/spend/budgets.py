"""Budgets: what a project, a label or a token may spend in a period."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database, fetch_in
from server.db.pool import RawPool
from server.db.tables import Budget, BudgetRow
from server.db.tables.rows import make_rows, select_rows
from server.db.text import is_storable
from server.enums import BudgetAction, BudgetPeriod
from server.errors import Invalid, NotFound, Problem, Refused
from server.idempotency import CreatedObject, IdempotentRequest, create_once, key_problems
from server.spend.announce import mark_period
from server.spend.scope import is_label, is_shown, lock_project, refuse_foreign_token
from server.spend.usage import read_usage
from server.spend.watch import wake

BUDGETS_MAX = 100  # per project, and per token: admission reads those of its scope
NAME_MAX, THRESHOLDS_MAX, EXEMPT_MAX = 100, 10, 20
VALUES_MAX = 100  # of one condition on a label, as in filters
LIMIT_MAX = 10**15  # a billion dollars, in millionths
NAME_INDEX = "budget_name_is_unique"
DEFAULT_THRESHOLDS = (50, 80, 100)
INVALID_BUDGET = "INVALID_BUDGET"
BY_IDS = f"{select_rows(BudgetRow)} WHERE id = ANY($1::uuid[]) AND project_id = $2"


@dataclass(frozen=True, slots=True)
class Exemption:
    """A label with one of these values, or with any value if there are none; `is_not` negates it."""

    key: str
    values: tuple[str, ...] | None = None
    is_not: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Exemption":
        values = stored.get("values")
        return cls(stored["key"], None if values is None else tuple(values), bool(stored.get("is_not")))

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "values": None if self.values is None else list(self.values), "is_not": self.is_not}

    def can_be_stored(self) -> bool:
        values = ("",) if self.values is None else self.values
        return 1 <= len(values) <= VALUES_MAX and all(is_label(self.key, value) for value in values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        has_it = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return has_it != self.is_not


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What can be changed of a budget; None leaves it as it is."""

    name: str | None = None
    limit_micros: int | None = None
    thresholds: tuple[int, ...] | None = None
    action: BudgetAction | None = None
    exempt: tuple[Exemption, ...] | None = None

    def problems(self) -> Iterator[Problem]:
        if self.name is not None and not (1 <= len(self.name.strip()) <= NAME_MAX and is_storable(self.name)):
            yield _problem(f"A name has 1 to {NAME_MAX} characters.", "name")
        if self.limit_micros is not None and not 0 < self.limit_micros <= LIMIT_MAX:
            yield _problem("The limit must be above 0.", "limit")
        thresholds = self.thresholds or ()
        if len(thresholds) > THRESHOLDS_MAX or not all(1 <= each <= 100 for each in thresholds):
            yield _problem(f"At most {THRESHOLDS_MAX} thresholds, each 1 to 100 per cent.", "thresholds")
        if self.action is BudgetAction.OTHER:
            yield _problem("Choose NOTIFY, BLOCK, STOP or DELETE.", "action")
        if len(self.exempt or ()) > EXEMPT_MAX or not all(each.can_be_stored() for each in self.exempt or ()):
            message = f"At most {EXEMPT_MAX} conditions on labels, each with 1 to {VALUES_MAX} values."
            yield _problem(message, "exempt")

    def columns(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "name": None if self.name is None else self.name.strip(),
            "limit_micros": self.limit_micros,
            "thresholds": None if self.thresholds is None else sorted(set(self.thresholds)),
            "action": self.action,
            "exempt": None if self.exempt is None else [each.to_json() for each in self.exempt],
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class BudgetDraft:
    """A budget of the whole project, of a label, or of a token: at most one of them."""

    settings: BudgetChange
    period: BudgetPeriod
    timezone: str = "UTC"
    label: tuple[str, str] | None = None
    token_id: UUID | None = None
    horizon: timedelta = field(default=timedelta(hours=1))
    idempotency_key: str | None = None

    def problems(self) -> Iterator[Problem]:
        yield from key_problems(self.idempotency_key)
        yield from self.settings.problems()
        if self.period is BudgetPeriod.OTHER:
            yield _problem("Choose DAY, WEEK, MONTH or TOTAL.", "period")
        if not _is_timezone(self.timezone):
            yield _problem("There is no such time zone; an example is Europe/Berlin.", "timezone")
        if self.label is not None and not is_label(*self.label):
            yield _problem("This can't be a label.", "scope", "label")

    def fields(self) -> dict[str, Any]:
        """What makes it another request under the same key."""
        return {
            **self.settings.columns(),
            "period": self.period,
            "timezone": self.timezone,
            "label": None if self.label is None else list(self.label),
            "token_id": self.token_id,
        }


async def create_budget(database: Database, draft: BudgetDraft, *, by: Caller) -> CreatedObject[Budget]:
    """A limit below what was spent already is accepted, and acts at once."""
    _refuse(draft.problems())
    request = IdempotentRequest.of(by, draft.idempotency_key, "createBudget", draft.fields())

    async def create(session: AsyncSession, budget_id: UUID) -> Budget:
        return await insert_budget(session, draft, budget_id, project_id=by.project_id)

    try:
        return await create_once(database, request, Budget, create)
    except IntegrityError as error:
        raise _name_taken(error) from None


async def insert_budget(session: AsyncSession, draft: BudgetDraft, budget_id: UUID, *, project_id: UUID) -> Budget:
    """A checked draft. The project and its labels have so many budgets at most, and each token as many of its own."""
    await lock_project(session, project_id)
    await refuse_foreign_token(session, draft.token_id, project_id=project_id)
    of_the_same = (Budget.project_id == project_id, Budget.token_id.is_not_distinct_from(draft.token_id))
    if (await session.scalar(select(func.count()).where(*of_the_same)) or 0) >= BUDGETS_MAX:
        message = f"A project, and each of its tokens, has at most {BUDGETS_MAX} budgets; delete one first."
        raise Refused("TOO_MANY_BUDGETS", message)
    key, value = draft.label or (None, None)
    budget = Budget(
        id=budget_id,
        project_id=project_id,
        label_key=key,
        label_value=value,
        token_id=draft.token_id,
        period=draft.period,
        timezone=draft.timezone,
        horizon_s=round(draft.horizon.total_seconds()),
        **draft.settings.columns(),
    )
    session.add(budget)
    await session.flush()
    await session.refresh(budget)
    await mark_period(session, budget, (await read_usage(fetch_in(session), [budget]))[budget_id])
    await wake(session, project_id)
    return budget


async def update_budget(session: AsyncSession, budget_id: UUID, change: BudgetChange, *, project_id: UUID) -> Budget:
    _refuse(change.problems())
    budget = await _lock(session, budget_id, project_id)
    for name, value in change.columns().items():
        setattr(budget, name, value)
    try:
        await session.flush()
    except IntegrityError as error:
        raise _name_taken(error) from None
    await wake(session, project_id)
    return budget


async def delete_budget(session: AsyncSession, budget_id: UUID, *, project_id: UUID) -> None:
    await session.delete(await _lock(session, budget_id, project_id))
    await session.flush()
    await wake(session, project_id)


async def get_budgets(pool: RawPool, ids: Sequence[UUID], *, by: Caller) -> dict[UUID, BudgetRow]:
    rows = make_rows(BudgetRow, await pool.fetch_by_keys(BY_IDS, ids, by.project_id))
    return {row.id: row for row in rows if is_shown(row, by)}


async def _lock(session: AsyncSession, budget_id: UUID, project_id: UUID) -> Budget:
    budget = await session.get(Budget, budget_id, with_for_update=True, populate_existing=True)
    if budget is None or budget.project_id != project_id:
        raise NotFound("budget", ("input", "id"))
    return budget


def _refuse(problems: Iterator[Problem]) -> None:
    found = list(problems)
    if found:
        raise Invalid(found)


def _name_taken(error: IntegrityError) -> Exception:
    if NAME_INDEX not in str(error.orig):
        return error
    return Invalid([Problem("BUDGET_NAME_TAKEN", "Another budget of the project has this name.", ("input", "name"))])


def _is_timezone(name: str) -> bool:
    try:
        return bool(ZoneInfo(name))
    except (ValueError, OSError, LookupError):  # LookupError: ZoneInfoNotFoundError
        return False


def _problem(message: str, *path: str) -> Problem:
    return Problem(INVALID_BUDGET, message, ("input", *path))
