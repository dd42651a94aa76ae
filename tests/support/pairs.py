"""Test cases in which every two values of different factors occur together at least once."""

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

CANDIDATES = 30  # per case; more make the list only a little shorter

Case = dict[str, Any]
_Pair = tuple[tuple[str, Any], tuple[str, Any]]


def all_pairs(factors: Mapping[str, Sequence[Any]], *, seed: int = 1) -> list[Case]:
    """A short list of cases, the same for the same seed: each next case is the best of a few random ones."""
    chance = random.Random(seed)
    names = list(factors)
    missing = {
        ((one, value), (other, other_value))
        for one, other in combinations(names, 2)
        for value in factors[one]
        for other_value in factors[other]
    }
    cases: list[Case] = []
    while missing:
        left = sorted(missing, key=repr)
        candidates = [_candidate(factors, chance, dict(chance.choice(left))) for _ in range(CANDIDATES)]
        best = max(candidates, key=lambda case: len(missing & pairs_of(case)))
        missing -= pairs_of(best)
        cases.append(best)
    return cases


def pairs_of(case: Case) -> set[_Pair]:
    return set(combinations(case.items(), 2))


def _candidate(factors: Mapping[str, Sequence[Any]], chance: random.Random, fixed: Case) -> Case:
    """In the order of the factors, so that pairs of equal values are equal."""
    return {name: fixed[name] if name in fixed else chance.choice(values) for name, values in factors.items()}
