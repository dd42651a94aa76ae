"""The type of an instance's machines."""

from collections.abc import Sequence
from datetime import datetime

import strawberry

from schema.types.money import BillingMode, Money
from server.conversion import convert
from server.db import tables


@strawberry.type(description="A machine that an instance has or had at the provider. At most one serves at a time.")
class Machine:
    number: int = strawberry.field(description="1 for the first, then 2, ...")
    novita_id: str = strawberry.field(description="The provider's id.")
    region: str | None = strawberry.field(description="Its region, such as AS-SGP-02.")
    product_id: str | None = strawberry.field(description="The provider's product id.")
    billing_mode: BillingMode | None = strawberry.field(description="How it is billed.")
    price_per_hour: Money | None = strawberry.field(description="Price per hour while it runs.")
    began_at: datetime = strawberry.field(description="When it was made.")
    serving_since: datetime | None = strawberry.field(
        description="When it became the machine of the instance; null while another one is."
    )
    removing_since: datetime | None = strawberry.field(
        description="Since when it is being removed because another machine has replaced it."
    )
    ended_at: datetime | None = strawberry.field(description="When the provider had it no more.")
    end_reason: str | None = strawberry.field(
        description="Why it ended: DELETED with its instance, REPLACED by another machine, or GONE_AT_PROVIDER."
    )

    @classmethod
    def list_of(cls, machines: Sequence[tables.MachineRow]) -> "list[Machine]":
        return [
            convert(
                cls,
                each,
                billing_mode=BillingMode.of(each.billing_mode),
                price_per_hour=Money.of(each.price_e5),
                serving_since=each.serving_from,
                removing_since=each.removing_from,
            )
            for each in machines
        ]
