"""Draws the schedule of faults from a seed before anything runs, so that a failed run can be repeated."""

import random
from dataclasses import dataclass

APIS = ("api 1", "api 2")
WORKERS = ("worker 1", "worker 2")
PROCESSES = (*APIS, *WORKERS)
LONGEST = 12.0  # seconds that any one fault lasts, unless its name says "long"
SHORT = 4.0  # seconds, for a run of less than a minute

# How often each comes, as parts of the whole. The short names on the right are what the table shows.
NETWORK = {"cut": 3, "reset": 3, "silent": 2, "silent up": 2, "silent down": 2, "half-open": 2, "slow": 2, "narrow": 1,
           "broken off": 2}  # fmt: skip
PROVIDER = {"rateLimit": 4, "error": 3, "lostAnswer": 4, "errorAfter": 4, "hangAfter": 3, "hang": 2, "drop": 2,
            "cutJson": 2, "cutConnection": 2, "garbage": 2, "outage": 3, "listLag": 4, "latency": 2,
            "unknownStatus": 1, "pullFailure": 1, "spotReclaim": 1, "badGateway": 1}  # fmt: skip
SHORT_PROVIDER = ("lostAnswer", "listLag", "outage", "hangAfter")
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
    "provider long outage": 3,
    "wrong key worker": 3,
    "clock jump": 5,
    "receiver trouble": 5,
    "hostile queries": 2,
    "socket flood": 2,
    "slow readers": 2,
    "machines reclaimed": 5,
}
# What the simulator does where the real provider's behaviour is not known; one of them for a whole run.
DIALECTS: tuple[dict[str, object], ...] = (
    {},
    {"first_page": "0", "verb_body": "ok"},
    {"first_page": "1", "name_filter": "prefix", "verb_body": "empty", "retry_after": "1"},
    {"name_filter": "exact", "total": "missing", "not_found": "html"},
    {"name_filter": "ignored", "total": "text", "verb_body": "null"},
    {"max_page_size": 20, "caps_page_size": True, "list_ports": "noEndpoints", "verb_body": "noContent"},
    {"list_delay": 2.0, "list_delay_hides_from_get": True, "deletes_at_once": True, "verb_body": "envelope"},
    {"edit_delay": 2.0, "extra_ports": "9999/tcp", "removed_shown": 2.0},
)
# Longer than PROVIDER_MAX_WAIT: too long for a run of less than a minute.
LONG_KINDS = frozenset({"provider long outage"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when it begins, its kind, the process that it hits, its form, its length and its strength."""

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
    """Random faults over that time, about one every `every` seconds. Leaving kinds out does not move the others."""
    chance = random.Random(f"{seed}:schedule")
    faults: list[Fault] = []
    at = every
    while at < seconds:
        fault = _draw(chance, at)
        if fault.kind not in without:
            faults.append(fault)
        at += chance.uniform(0.3, 1.7) * every
    return faults


def dialect_of(seed: int) -> dict[str, object]:
    """The simulator's dialect of a run."""
    return DIALECTS[seed % len(DIALECTS)]


def each_kind_once(seed: int, *, seconds: float, without: frozenset[str] = frozenset()) -> list[Fault]:
    """Every kind but the long ones once, in a random order, spread evenly over that time; none longer than SHORT."""
    chance = random.Random(f"{seed}:each kind once")
    kinds = [kind for kind in WEIGHTS if kind not in LONG_KINDS]
    chance.shuffle(kinds)
    faults = [
        _draw(chance, seconds * (number + 0.5) / len(kinds), kind=kind, longest=SHORT)
        for number, kind in enumerate(kinds)
    ]
    # One form of the provider's many faults is too few: these are the ones that creates must survive.
    faults += [
        Fault(
            seconds * (number + 0.3) / len(SHORT_PROVIDER), "provider faults", "", how, SHORT, chance.uniform(0.4, 0.6)
        )
        for number, how in enumerate(SHORT_PROVIDER)
    ]
    # At another time than the random one there are other machines.
    faults.append(Fault(seconds * 0.6, "machines reclaimed", "", "", SHORT, 0.3))
    return sorted((fault for fault in faults if fault.kind not in without), key=lambda fault: fault.at)


def with_the_provider_away(faults: list[Fault], *, seconds: float) -> list[Fault]:
    """The same faults with the provider away for nearly all the time, in place of the provider's other faults."""
    away = Fault(5.0, "provider faults", "", "outage", seconds - 10.0, 0.5)
    return sorted([away, *(each for each in faults if not each.kind.startswith("provider"))], key=lambda each: each.at)


def _draw(chance: random.Random, at: float, *, kind: str | None = None, longest: float = LONGEST) -> Fault:
    kind = kind or chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    victim, how = "", ""
    if kind.endswith(" api"):
        victim = chance.choice(APIS)
    elif kind.endswith(" worker"):
        victim = chance.choice(WORKERS)
    elif kind.endswith(" network") or kind == "clock jump":
        victim = chance.choice(PROCESSES)
    elif kind in ("hostile queries", "socket flood", "slow readers"):
        victim = chance.choice(APIS)
    if kind.endswith(" network"):
        how = chance.choices(list(NETWORK), list(NETWORK.values()))[0]
    elif kind == "provider faults":
        how = chance.choices(list(PROVIDER), list(PROVIDER.values()))[0]
    elif kind == "wrong key worker":
        how = chance.choice(("another key", "no key"))
    elif kind == "receiver trouble":
        how = chance.choice(("500", "hang", "reset", "429"))
    elif kind == "clock jump":
        how = chance.choice(("-86400", "-3600", "-30", "30", "3600", "86400"))
    seconds = chance.uniform(0.5, 6.0) if chance.random() < 0.7 else chance.uniform(6.0, LONGEST)
    return Fault(at, kind, victim, how, min(seconds, longest), chance.random())
