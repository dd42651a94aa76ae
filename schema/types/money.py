"""Money, exact."""

import strawberry

from schema.scalars import BigInt

MICROS_PER_E5 = 10  # the provider counts in 1/100000 USD


@strawberry.type(description="An exact amount of money.")
class Money:
    amount_micros: BigInt = strawberry.field(description="Millionths of the currency: 350000 is 0.35 USD.")
    currency: str = strawberry.field(description="ISO 4217 code; the provider bills in USD.")

    @classmethod
    def of(cls, amount_e5: int | None) -> "Money | None":
        return None if amount_e5 is None else cls(amount_micros=BigInt(amount_e5 * MICROS_PER_E5), currency="USD")
