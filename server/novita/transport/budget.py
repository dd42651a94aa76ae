"""How many calls may be made, and by which class: a token bucket whose rate follows the provider's refusals.

Each class has a share that is its own while the others are busy; what they leave is free for all. Each class but the
first leaves some tokens in the bucket, so that a stop finds its calls at once, in whichever process it is made:
processes do not see what waits in others. Beyond their shares, less urgent classes leave more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import exp
from typing import Protocol


class CallPriority(IntEnum):
    """The class of a call, the most urgent first. A user waits for USER calls; POLL calls watch machines."""

    END = 0
    USER = 1
    POLL = 2
    START = 3
    CREATE = 4


P = CallPriority
Calls = Mapping[CallPriority, int]
# The part of the rate that each class has while all are busy.
SHARES: Mapping[CallPriority, float] = {P.END: 0.3, P.USER: 0.1, P.POLL: 0.25, P.START: 0.15, P.CREATE: 0.2}
# The part of the bucket that is kept for ends, as far as their share allows: a look and a call. Without it the shares
# of the others kept the bucket empty, and a stop waited for up to 1.7 s at every step.
KEPT_FOR_ENDS = 0.2
# How much of the bucket each class leaves to the classes before it when it takes more than its share.
LEFT_OVER: Mapping[CallPriority, float] = {P.END: 0, P.USER: 0.25, P.POLL: 0.25, P.START: 0.35, P.CREATE: 0.45}
BURST_SECONDS = 6.0  # the bucket holds so many seconds' calls: opening a page makes several at once
# A class that was idle may have so many calls before it is held to its share. A stop has three steps at once.
OWN_TOKENS_MAX: Mapping[CallPriority, float] = {P.END: 5.0, P.USER: 2.0, P.POLL: 2.0, P.START: 2.0, P.CREATE: 2.0}
# A refusal lowers the rate by this factor, at most once in a while: calls already sent are refused too. Each success
# adds a hundredth of the limit, so the rate follows the provider's real limit closely.
LOWERED_BY = 0.7
LOWERED_EVERY = 2.0
RATE_MIN = 0.05
RAISED_BY = 0.01
USE_SECONDS = 30.0  # over which the measured use of each class is averaged


@dataclass(slots=True)
class CallBudgetState:
    """The bucket. `rate` and `used` are in calls a second; `at` and `lowered_at` are seconds of one clock."""

    rate: float
    tokens: float
    at: float
    lowered_at: float = 0.0
    own: list[float] = field(default_factory=lambda: [OWN_TOKENS_MAX[each] for each in P])
    used: list[float] = field(default_factory=lambda: [0.0 for _ in P])


@dataclass(frozen=True, slots=True)
class Grant:
    """The calls that may be made now; if none, when to ask again. `rate` is the present one, in calls a second."""

    calls: Calls
    wait: float
    rate: float
    available: float


class CallBudget(Protocol):
    """The calls of all who share it."""

    async def take(self, wanted: Calls, *, charged: Calls, successes: int) -> Grant:
        """Take what can be had of `wanted`; `charged` calls were made already, or can't wait. Less than zero of them
        are calls that were granted and not made."""
        ...

    async def lower(self) -> float:
        """The provider refused a call because of its rate; return the new rate."""
        ...


def full_budget(limit: float, at: float) -> CallBudgetState:
    """A full bucket; `limit` is in calls a second."""
    return CallBudgetState(limit, _burst(limit), at)


def take_calls(
    state: CallBudgetState, limit: float, now: float, wanted: Calls, charged: Calls, successes: int
) -> Grant:
    """Refill, then grant: first every class its own share, then what is left in the order of the classes."""
    elapsed = max(0.0, now - state.at)
    state.at = now
    state.rate = min(limit, max(state.rate, limit * RATE_MIN) + successes * RAISED_BY * limit)
    burst = _burst(state.rate)
    state.tokens = min(burst, state.tokens + elapsed * state.rate)
    fading = exp(-elapsed / USE_SECONDS)
    for each in P:
        state.own[each] = min(OWN_TOKENS_MAX[each], state.own[each] + elapsed * state.rate * SHARES[each])
        state.used[each] *= fading
        _spend(state, each, charged.get(each, 0))
    state.tokens = max(-burst, min(state.tokens, burst))
    given = dict.fromkeys(wanted, 0)
    for is_own in (True, False):
        for each in sorted(wanted):
            while given[each] < wanted[each] and _may(state, each, is_own, burst):
                _spend(state, each, 1)
                given[each] += 1
    left = [each for each in wanted if given[each] < wanted[each]]
    wait = 0.0 if any(given.values()) else min((_wait(state, each, burst) for each in left), default=0.0)
    return Grant(given, wait, state.rate, state.tokens)


def lower_rate(state: CallBudgetState, limit: float, now: float) -> float:
    """The provider refused a call: use a lower rate, and nothing of what was saved up."""
    if now - state.lowered_at >= LOWERED_EVERY:
        state.rate = max(limit * RATE_MIN, state.rate * LOWERED_BY)
        state.lowered_at = now
    state.tokens, state.at = min(state.tokens, 0.0), now
    return state.rate


def _burst(rate: float) -> float:
    return max(1.0, rate * BURST_SECONDS)


def _may(state: CallBudgetState, each: CallPriority, is_own: bool, burst: float) -> bool:
    if is_own:
        return state.own[each] >= 1 and state.tokens >= _own_level(state, each, burst)
    return state.tokens >= _level(each, burst)


def _own_level(state: CallBudgetState, each: CallPriority, burst: float) -> float:
    """The bucket's level from which a class may use its share."""
    return 1.0 if each is P.END else 1.0 + int(min(KEPT_FOR_ENDS * burst, state.own[P.END]))


def _level(each: CallPriority, burst: float) -> float:
    """The bucket's level from which a class may use more than its share."""
    return max(1.0, min(1 + LEFT_OVER[each] * burst, burst))


def _spend(state: CallBudgetState, each: CallPriority, calls: int) -> None:
    state.tokens -= calls
    state.own[each] = min(OWN_TOKENS_MAX[each], max(0.0, state.own[each] - calls))
    state.used[each] = max(0.0, state.used[each] + calls / USE_SECONDS)


def _wait(state: CallBudgetState, each: CallPriority, burst: float) -> float:
    level = _own_level(state, each, burst)
    own = max((1 - state.own[each]) / (state.rate * SHARES[each]), (level - state.tokens) / state.rate)
    free = (_level(each, burst) - state.tokens) / state.rate
    return max(0.001, min(own, free))
