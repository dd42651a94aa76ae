"""Mutation: syncSpend."""

from typing import Annotated

import strawberry

from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, MutationInput
from schema.permissions import Requires, mutation
from server.account.bill import sync_bill
from server.enums import Role


@strawberry.input(description="Compare with the bill now.")
class SyncSpendInput(MutationInput):
    pass


@strawberry.type(description="Result of the comparison.")
class SyncSpendPayload(Payload):
    lines: int = strawberry.field(
        default=0, description="Lines of the bill that were read: one per machine of the account and day."
    )


@strawberry.type
class SpendMutations:
    @mutation(
        "Read the provider's bill now, and compare it with the ledger: `spend { billed difference }`. Also "
        "done every BILL_INTERVAL. A day is compared six hours after its end. Needs the role ADMIN.",
        Requires(Role.ADMIN),
    )
    async def sync_spend(self, info: Info, input: Annotated[SyncSpendInput | None, Input] = None) -> SyncSpendPayload:
        if info.context.is_validate_only:
            return SyncSpendPayload()
        report = await sync_bill(info.context.services.account, by=info.context.caller)
        return SyncSpendPayload(lines=report.lines)
