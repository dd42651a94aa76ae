"""Values that GraphQL has no word for."""

from typing import Any, NewType

import strawberry
from graphql import GraphQLError

BIGGEST = 2**53 - 1  # beyond this, JavaScript's numbers lose the last digits

BigInt = NewType("BigInt", int)


def _read(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > BIGGEST:
        raise GraphQLError(f"BigInt must be a whole number between -{BIGGEST} and {BIGGEST}.")
    return value


BIG_INT = strawberry.scalar(
    name="BigInt",
    description="A whole number of up to 53 bits, as a JSON number.",
    serialize=int,
    parse_value=_read,
)
