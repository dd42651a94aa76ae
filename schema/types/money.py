"""Types: Money, BillingMode."""

from enum import StrEnum

import strawberry

from schema.enums import described
from schema.scalars import BigInt

MICROS_PER_E5 = 10  # the provider counts in 1/100000 USD


@strawberry.type(description="An exact amount of money.")
class Money:
    amount_micros: BigInt = strawberry.field(description="Millionths of the currency: 350000 is 0.35 USD.")
    currency: str = strawberry.field(description="ISO 4217 code; the provider bills in USD.")

    @classmethod
    def of(cls, amount_e5: int | None) -> "Money | None":
        return None if amount_e5 is None else cls(amount_micros=BigInt(amount_e5 * MICROS_PER_E5), currency="USD")


def money(micros: int) -> Money:
    return Money(amount_micros=BigInt(micros), currency="USD")


class BillingMode(StrEnum):
    """The provider's values; an unknown one becomes OTHER."""

    SPOT = "spot"
    ON_DEMAND = "onDemand"
    MONTHLY = "monthly"
    OTHER = "other"

    @classmethod
    def of(cls, value: str | None) -> "BillingMode | None":
        if not value:
            return None
        return _KNOWN.get(value, cls.OTHER)


_KNOWN = {str(each): each for each in BillingMode}

described(
    BillingMode,
    description="Billing mode at the provider.",
    values={
        "SPOT": "Billed by the hour at a lower price; the provider may reclaim it.",
        "ON_DEMAND": "Billed by the hour.",
        "MONTHLY": "Billed monthly in advance; only adopted machines have it.",
        "OTHER": "A billing mode that this server does not know.",
    },
)
