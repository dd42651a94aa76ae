"""What a token for a program may do at most."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter

from server.db.text import is_storable
from server.errors import Problem

INVALID_TOKEN_LIMITS = "INVALID_TOKEN_LIMITS"
PATH = ("input", "limits")
SHORTEST, LONGEST = timedelta(seconds=300), timedelta(days=90)  # as of lifetimes
LISTED_MAX, NAME_MAX = 100, 255
MONEY_MAX = 10**15  # a billion dollars, in millionths


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """`None` is no limit. What it may spend and have at once is limited by a budget and a quota of its own."""

    max_duration: timedelta | None = None
    product_names: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    own_instances_only: bool = False

    def problems(self) -> Iterator[Problem]:
        if self.max_duration is not None and not SHORTEST <= self.max_duration <= LONGEST:
            message = f"It must be {SHORTEST.total_seconds():.0f} to {LONGEST.total_seconds():.0f} s."
            yield limits_problem(message, "maxDuration")
        for name, values in (("productNames", self.product_names), ("regions", self.regions)):
            if values is not None and not _are_names(values):
                yield limits_problem(f"Give 1 to {LISTED_MAX} names of 1 to {NAME_MAX} characters.", name)

    def to_json(self) -> dict[str, Any] | None:
        return _LIMITS.dump_python(self, mode="json", exclude_defaults=True) or None


_LIMITS = TypeAdapter(TokenLimits)
NO_LIMITS = TokenLimits()


def read_limits(stored: dict[str, Any] | None) -> TokenLimits:
    return NO_LIMITS if stored is None else _LIMITS.validate_python(stored)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a new token may spend and have at once. Prices are in 1/100000 USD, the budget in millionths."""

    budget_micros: int | None = None
    max_instances: int | None = None
    max_price_e5: int | None = None

    def problems(self) -> Iterator[Problem]:
        if self.budget_micros is not None and not 0 < self.budget_micros <= MONEY_MAX:
            yield limits_problem("It must be above 0.", "budget")
        if self.max_instances is not None and not 1 <= self.max_instances <= 1_000_000:
            yield limits_problem("It must be 1 to 1000000.", "maxInstances")
        if self.max_price_e5 is not None and not 0 < self.max_price_e5 <= MONEY_MAX // 10:
            yield limits_problem("It must be above 0.", "maxPricePerHour")


NO_ALLOWANCE = Allowance()


def _are_names(values: tuple[str, ...]) -> bool:
    is_counted = 1 <= len(values) <= LISTED_MAX
    return is_counted and all(each.strip() and len(each) <= NAME_MAX and is_storable(each) for each in values)


def limits_problem(message: str, *path: str) -> Problem:
    return Problem(INVALID_TOKEN_LIMITS, message, (*PATH, *path))
