"""Small inputs that several mutations share."""

import strawberry

from schema.scalars import BigInt

VERSION = "The version that you last saw: if the instance has another by now, it is refused with VERSION_CONFLICT."
KEY = "Your own word for this request, 1 to 255 characters: sending it again gives the same answer and does nothing."


@strawberry.input(description="What every mutation can be told.")
class MutationInput:
    validate_only: bool = strawberry.field(
        default=False,
        description="Only say what would be refused: everything is checked, nothing is written, done or asked of the "
        "provider. `errors` is as it would be; all else in the answer is null, empty or false.",
    )


@strawberry.input(description="An exact amount of money.")
class MoneyInput:
    amount_micros: BigInt = strawberry.field(description="Millionths of the currency: 350000 is 0.35 USD.")
    currency: str = strawberry.field(default="USD", description="Only USD.")


@strawberry.input(description="A name and its value.")
class KeyValueInput:
    key: str = strawberry.field(description="The name.")
    value: str = strawberry.field(description="The value.")


@strawberry.input(description="A port to expose.")
class PortInput:
    port: int = strawberry.field(description="1 to 65535, without 2222, 2223 and 2224.")
    type: str = strawberry.field(default="http", description="http or tcp.")


def mapping(pairs: list[KeyValueInput]) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}


def are_unique(pairs: list[KeyValueInput]) -> bool:
    return len({pair.key for pair in pairs}) == len(pairs)
