"""Values that the server's types are made of."""

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

MICROS = 1_000_000


@dataclass(frozen=True)
class Money:
    """An amount of money, exact to a millionth."""

    amount_micros: int
    currency: str = "USD"

    @property
    def amount(self) -> Decimal:
        """In whole units of the currency."""
        return Decimal(self.amount_micros) / MICROS

    def __str__(self) -> str:
        return f"{self.amount.normalize():f} {self.currency}"


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Base of the generated types: they compare and print by their fields.

    A dataclass would compile these methods for each of them, which takes a third of their import.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values())})"

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(value for _, value in self._values()))

    def _values(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]
