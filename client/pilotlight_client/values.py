"""Values that the server's types are made of."""

from dataclasses import dataclass
from decimal import Decimal

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
