"""Mutation: setQuota."""

from typing import Annotated

import strawberry

from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, MoneyInput, MutationInput
from schema.mutations.budgets import BudgetScopeInput, scope_of
from schema.permissions import Requires, mutation
from schema.types.money import MICROS_PER_E5
from schema.types.spend.quota import Quota
from server.enums import Role
from server.errors import Invalid, Problem
from server.spend.quotas import INVALID_QUOTA, QuotaDraft, set_quota


@strawberry.input(description="The quota of a scope; it replaces the present one. Without any maximum it is removed.")
class SetQuotaInput(MutationInput):
    scope: BudgetScopeInput = strawberry.field(description="What it counts.")
    max_instances: int | None = strawberry.field(default=None, description="Most instances with a machine.")
    max_gpus: int | None = strawberry.field(default=None, description="Most GPUs.")
    max_price_per_hour: MoneyInput | None = strawberry.field(
        default=None, description="Highest price per hour of all machines together, in USD."
    )


@strawberry.type(description="The quota of the scope.")
class SetQuotaPayload(Payload):
    quota: Quota | None = strawberry.field(default=None, description="The quota from now on; null: it has none.")


@strawberry.type
class QuotaMutations:
    @mutation(
        "Limit how many instances and GPUs the project, a label or a token may have at once, and their "
        "price per hour. What runs already stays. A project has at most 100, and one for each token.",
        Requires(Role.ADMIN),
    )
    async def set_quota(self, info: Info, input: Annotated[SetQuotaInput, Input]) -> SetQuotaPayload:
        label, token_id = scope_of(input.scope, INVALID_QUOTA)
        price = input.max_price_per_hour
        if price is not None and price.currency != "USD":
            path = ("input", "maxPricePerHour", "currency")
            raise Invalid([Problem(INVALID_QUOTA, "The provider bills in USD.", path)])
        draft = QuotaDraft(
            input.max_instances,
            input.max_gpus,
            None if price is None else price.amount_micros // MICROS_PER_E5,
            label,
            token_id,
        )
        async with info.context.write() as session:
            row = await set_quota(session, draft, project_id=info.context.caller.project_id)
        return SetQuotaPayload(quota=None if row is None else Quota.of(row))
