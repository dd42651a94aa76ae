"""Mutations: createBudget, updateBudget, deleteBudget."""

from typing import Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.filters import LabelFilter
from schema.inputs import KEY, Input, KeyValueInput, MoneyInput, MutationInput
from schema.mutations.account import REPLAYED
from schema.permissions import Requires, mutation
from schema.types.spend.budget import Budget
from server.enums import BudgetAction, BudgetPeriod, Role
from server.errors import Invalid, Problem
from server.spend import budgets
from server.spend.budgets import DEFAULT_THRESHOLDS, INVALID_BUDGET, BudgetChange, BudgetDraft, Exemption

LIMIT = "What may be spent in a period, in USD."
THRESHOLDS = "Per cent of the limit, at most 10, that are announced once per period as events `budget.threshold`."
EXEMPT = "Instances that match one of these, at most 20, are neither stopped nor deleted."


@strawberry.input(one_of=True, description="What a budget or a quota counts.")
class BudgetScopeInput:
    project: bool | None = strawberry.field(default=strawberry.UNSET, description="true: everything in the project.")
    label: KeyValueInput | None = strawberry.field(
        default=strawberry.UNSET, description="Instances with this label, as long as they have it."
    )
    token_id: strawberry.ID | None = strawberry.field(
        default=strawberry.UNSET, description="What this token creates and starts."
    )


@strawberry.input(description="The budget to create.")
class CreateBudgetInput(MutationInput):
    name: str = strawberry.field(description="Unique name in the project, 1 to 100 characters.")
    scope: BudgetScopeInput = strawberry.field(description="What it counts.")
    period: BudgetPeriod = strawberry.field(description="After which time it begins anew.")
    limit: MoneyInput = strawberry.field(description=LIMIT)
    timezone: str = strawberry.field(default="UTC", description="IANA time zone of its periods, such as Europe/Berlin.")
    thresholds: list[int] = strawberry.field(default_factory=lambda: list(DEFAULT_THRESHOLDS), description=THRESHOLDS)
    action: BudgetAction = strawberry.field(default=BudgetAction.BLOCK, description="What it does.")
    exempt: list[LabelFilter] | None = strawberry.field(default=None, description=EXEMPT)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The new budget.")
class CreateBudgetPayload(Payload):
    budget: Budget | None = strawberry.field(default=None, description="The budget; null if deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="Changes of a budget; what is not given stays. They act at once.")
class UpdateBudgetInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the budget.")
    name: str | None = strawberry.field(default=None, description="New name.")
    limit: MoneyInput | None = strawberry.field(default=None, description=LIMIT)
    thresholds: list[int] | None = strawberry.field(default=None, description=THRESHOLDS)
    action: BudgetAction | None = strawberry.field(default=None, description="What it does.")
    exempt: list[LabelFilter] | None = strawberry.field(default=None, description=EXEMPT)


@strawberry.type(description="The changed budget.")
class UpdateBudgetPayload(Payload):
    budget: Budget | None = strawberry.field(default=None, description="The budget after this change.")


@strawberry.input(description="The budget to delete.")
class DeleteBudgetInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the budget.")


@strawberry.type(description="The deleted budget.")
class DeleteBudgetPayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the budget.")


@strawberry.type
class BudgetMutations:
    @mutation(
        "Limit what the project, a label or a token may spend in a period. A limit below what was spent "
        "already is accepted and acts at once. A project has at most 100.",
        Requires(Role.ADMIN),
    )
    async def create_budget(self, info: Info, input: Annotated[CreateBudgetInput, Input]) -> CreateBudgetPayload:
        services = info.context.services
        label, token_id = scope_of(input.scope, INVALID_BUDGET)
        draft = BudgetDraft(
            settings=BudgetChange(
                input.name,
                _micros(input.limit),
                tuple(input.thresholds),
                input.action,
                _exempt(input.exempt or []),
            ),
            period=input.period,
            timezone=input.timezone,
            label=label,
            token_id=token_id,
            horizon=services.settings.budget_horizon,
            idempotency_key=input.idempotency_key,
        )
        created = await budgets.create_budget(services.database, draft, by=info.context.caller)
        budget = None if created.row is None else Budget.of(created.row)
        return CreateBudgetPayload(budget=budget, replayed=created.replayed)

    @mutation("Change a budget. Its scope and period stay.", Requires(Role.ADMIN))
    async def update_budget(self, info: Info, input: Annotated[UpdateBudgetInput, Input]) -> UpdateBudgetPayload:
        change = BudgetChange(
            input.name,
            None if input.limit is None else _micros(input.limit),
            None if input.thresholds is None else tuple(input.thresholds),
            input.action,
            None if input.exempt is None else _exempt(input.exempt),
        )
        budget_id = ids.parse(ids.BUDGET, input.id, ("input", "id"))
        async with info.context.write() as session:
            row = await budgets.update_budget(session, budget_id, change, project_id=info.context.caller.project_id)
        return UpdateBudgetPayload(budget=Budget.of(row))

    @mutation("Delete a budget. What it refused may be requested again.", Requires(Role.ADMIN))
    async def delete_budget(self, info: Info, input: Annotated[DeleteBudgetInput, Input]) -> DeleteBudgetPayload:
        budget_id = ids.parse(ids.BUDGET, input.id, ("input", "id"))
        async with info.context.write() as session:
            await budgets.delete_budget(session, budget_id, project_id=info.context.caller.project_id)
        return DeleteBudgetPayload(deleted_id=input.id)


def scope_of(scope: BudgetScopeInput, code: str) -> tuple[tuple[str, str] | None, UUID | None]:
    """The label and the token; neither for the whole project."""
    if scope.project is False:
        raise Invalid([Problem(code, "Give true, a label or a token.", ("input", "scope", "project"))])
    label = (scope.label.key, scope.label.value) if scope.label else None
    path = ("input", "scope", "tokenId")
    return label, ids.parse(ids.TOKEN, scope.token_id, path) if scope.token_id else None


def _micros(limit: MoneyInput) -> int:
    if limit.currency != "USD":
        raise Invalid([Problem(INVALID_BUDGET, "The provider bills in USD.", ("input", "limit", "currency"))])
    return limit.amount_micros


def _exempt(filters: list[LabelFilter]) -> tuple[Exemption, ...]:
    conditions = [each.to_domain() for each in filters]
    return tuple(Exemption(each.key, each.values, each.is_not) for each in conditions)
