"""What goes wrong when: drawn from a seed before anything runs, so that a failure can be asked for again."""

import random
from dataclasses import dataclass

APIS = ("api 1", "api 2")
WORKERS = ("worker 1", "worker 2")
MEMBERS = (*APIS, *WORKERS)
LONGEST = 12.0  # seconds that any one fault lasts, unless its name says "long"

# How often each comes, as parts of the whole. The short names on the right are what the table shows.
NETWORK = {"cut": 3, "reset": 3, "silent": 2, "silent up": 2, "silent down": 2, "half-open": 2, "slow": 2, "narrow": 1,
           "broken off": 2}  # fmt: skip
PROVIDER = {"rateLimit": 4, "error": 3, "lostAnswer": 4, "errorAfter": 4, "hangAfter": 3, "hang": 2, "drop": 2,
            "cutJson": 2, "cutConnection": 2, "garbage": 2, "outage": 3, "listLag": 4, "latency": 2,
            "unknownStatus": 1, "pullFailure": 1, "spotReclaim": 1, "badGateway": 1}  # fmt: skip
WEIGHTS: dict[str, int] = {
    "kill -9 api": 4,
    "kill -9 worker": 8,
    "freeze api": 2,
    "freeze worker": 6,
    "SIGTERM api": 3,
    "SIGTERM worker": 4,
    "database fast restart": 2,
    "database immediate restart": 3,
    "database kill -9": 1,
    "database network": 16,
    "database away for all": 2,
    "database disk full": 2,
    "cache network": 4,
    "cache kill -9": 2,
    "provider network": 9,
    "provider freeze": 1,
    "provider faults": 20,
    "clock jump": 5,
    "receiver trouble": 5,
    "hostile queries": 2,
    "socket flood": 2,
    "slow readers": 2,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: when, what, to whom, how, and for how long."""

    at: float
    kind: str
    victim: str
    how: str
    seconds: float
    size: float

    def __str__(self) -> str:
        words = [self.kind, self.how, f"({self.victim})" if self.victim else "", f"{self.seconds:.1f} s"]
        return f"{self.at:7.1f}  " + " ".join(word for word in words if word)


def schedule(seed: int, *, seconds: float, every: float, without: frozenset[str] = frozenset()) -> list[Fault]:
    """Faults over that time, one each `every` seconds or so. Leaving kinds out does not change when the others come."""
    chance = random.Random(f"{seed}:schedule")
    faults: list[Fault] = []
    at = every
    while at < seconds:
        fault = _draw(chance, at)
        if fault.kind not in without:
            faults.append(fault)
        at += chance.uniform(0.3, 1.7) * every
    return faults


def with_the_provider_away(faults: list[Fault], *, seconds: float) -> list[Fault]:
    """The same with the provider gone for nearly all that time: whatever else was to happen to it can't."""
    away = Fault(5.0, "provider faults", "", "outage", seconds - 10.0, 0.5)
    return sorted([away, *(each for each in faults if not each.kind.startswith("provider"))], key=lambda each: each.at)


def _draw(chance: random.Random, at: float) -> Fault:
    kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    victim, how = "", ""
    if kind.endswith(" api"):
        victim = chance.choice(APIS)
    elif kind.endswith(" worker"):
        victim = chance.choice(WORKERS)
    elif kind.endswith(" network") or kind == "clock jump":
        victim = chance.choice(MEMBERS)
    elif kind in ("hostile queries", "socket flood", "slow readers"):
        victim = chance.choice(APIS)
    if kind.endswith(" network"):
        how = chance.choices(list(NETWORK), list(NETWORK.values()))[0]
    elif kind == "provider faults":
        how = chance.choices(list(PROVIDER), list(PROVIDER.values()))[0]
    elif kind == "receiver trouble":
        how = chance.choice(("500", "hang", "reset", "429"))
    elif kind == "clock jump":
        how = chance.choice(("-86400", "-3600", "-30", "30", "3600", "86400"))
    seconds = chance.uniform(0.5, 6.0) if chance.random() < 0.7 else chance.uniform(6.0, LONGEST)
    return Fault(at, kind, victim, how, seconds, chance.random())
