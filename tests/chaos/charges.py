"""Compares, in a chaos run, the ledger and the burn rate with what the simulator charged by its own record.

Machines that no instance has ever had are on the account's bill, but in no project's ledger.
"""

import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.chaos.cluster import Cluster
from tests.chaos.load import Accounts, RetryingCaller

Span = tuple[float, float | None]  # seconds since 1970; None: not ended


@dataclass(frozen=True, slots=True)
class Removal:
    """The time of the response to a removal, or that at which one was sent that had none."""

    at: float
    has_response: bool


# The provider names times in whole seconds. What it charges before the first one that it names is not known to us: the
# image pull, at the speed of the simulator in these runs.
PER_RUN, PULL = 1.0, 0.45
# REQUEST_TIMEOUT and REQUEST_DEADLINE of these runs: how long a response to a removal takes at most; and how long after
# its intent a removal without a response may take effect, because the provider was frozen or its worker killed.
RESPONSE, CALL = 3.0, 5.0

LEDGER = """
    SELECT machine, extract(epoch FROM began_at)::float8 AS began, extract(epoch FROM ended_at)::float8 AS ended
    FROM cost_entry ORDER BY machine, began_at, id
"""
KNOWN = "SELECT novita_id FROM machine UNION SELECT machine FROM cost_entry"
# A machine counts until the response to its removal, or until a removal was sent that had no response.
REMOVALS = """
    SELECT novita_id, extract(epoch FROM at)::float8 AS at,
           before ->> 'accepted_at' IS DISTINCT FROM before ->> 'sent_at' AND before ? 'accepted_at' AS has_response
    FROM operation JOIN instance ON instance.id = instance_id, LATERAL (SELECT coalesce(
        before ->> 'accepted_at', before ->> 'sent_at')::timestamptz AS at) AS removal
    WHERE operation.kind = 'DELETE' AND at IS NOT NULL AND novita_id IS NOT NULL
"""
BEING_REMOVED = "SELECT novita_id FROM instance WHERE status IN ('DELETING', 'DELETED') AND novita_id IS NOT NULL"
OPEN = "SELECT machine, sum(price_e5)::bigint AS price FROM cost_entry WHERE ended_at IS NULL GROUP BY machine"
BURN_RATE = "{ viewer { project { spend { burnRate { amountMicros } } } } }"
MICROS_PER_E5 = 10


def ledger_problems(
    paid: Mapping[str, Sequence[Span]],
    ledger: Mapping[str, Sequence[Span]],
    *,
    at: float,
    removals: Mapping[str, Removal] = MappingProxyType({}),
) -> tuple[list[str], float]:
    """One sentence per machine whose ledger differs from what was charged, and the largest difference in seconds."""
    wrong: list[str] = []
    largest = 0.0
    for machine in sorted(paid.keys() | ledger.keys()):
        charged, written = (_seconds(spans.get(machine, ()), at) for spans in (paid, ledger))
        runs = max(len(paid.get(machine, ())), 1)
        late = lateness(paid.get(machine, ()), removals.get(machine))
        # Just before its removal the machine may have been stopped: then the ledger has the end of the charge itself.
        differences = (written - charged, written - charged - late)
        largest = max(largest, min(map(abs, differences)))
        if not any(-(PER_RUN + PULL) * runs <= each <= PER_RUN * runs for each in differences):
            wrong.append(
                f"machine {machine} was charged {charged:.1f} s in {runs} runs, and the ledger has {written:.1f} s: "
                f"{_shown(paid.get(machine, ()))} and {_shown(ledger.get(machine, ()))}"
            )
    return wrong, largest


def lateness(paid: Sequence[Span], removal: Removal | None) -> float:
    """How much later than the charge the machine may end in the ledger: until a response that came late, and earlier if
    there was none. 0 if the charge ended before, by a stop."""
    ended = paid[-1][1] if paid else None
    if removal is None or ended is None:
        return 0.0
    late = removal.at - ended
    is_possible = 0 <= late <= RESPONSE if removal.has_response else -CALL <= late <= 0
    return late if is_possible else 0.0


def burn_problems(charged: Mapping[str, int], counted: Mapping[str, int]) -> list[str]:
    """Prices per hour by machine: what is charged now, and what the burn rate counts."""
    return [
        f"machine {machine} is charged at {charged.get(machine, 0)} and counts at {counted.get(machine, 0)} per hour"
        for machine in sorted(charged.keys() | counted.keys())
        if charged.get(machine, 0) != counted.get(machine, 0)
    ]


def _shown(spans: Sequence[Span]) -> str:
    """Spans as a reader of logs needs them: in seconds of the hour."""
    return ", ".join("-".join("" if at is None else f"{at % 3600:.1f}" for at in span) for span in spans) or "nothing"


def _seconds(spans: Iterable[Span], at: float) -> float:
    return sum((at if ended is None else ended) - began for began, ended in spans)


async def check_ledger(
    connection: Any, bills: Mapping[str, Sequence[Sequence[float]]], lost: Collection[str]
) -> tuple[int, list[str], str]:
    """How many runs were checked, what was wrong, and a note. Nothing says when a `lost` machine was lost."""
    known = {row[0] for row in await connection.fetch(KNOWN)}
    ledger = defaultdict[str, list[Span]](list)
    for row in await connection.fetch(LEDGER):
        if row["machine"] in lost:
            continue
        ledger[row["machine"]].append((row["began"], row["ended"]))
    paid = {
        machine: [(each[0], each[1] or None) for each in spans]
        for machine, spans in bills.items()
        if machine in known - set(lost)
    }
    rows = await connection.fetch(REMOVALS)
    removals = {row["novita_id"]: Removal(row["at"], row["has_response"]) for row in rows}
    wrong, largest = ledger_problems(paid, ledger, at=time.time(), removals=removals)
    runs = sum(map(len, paid.values()))
    late = [
        each for each in (lateness(paid[machine], removals.get(machine)) for machine in paid) if abs(each) > PER_RUN
    ]
    note = f"ledger: {runs} runs of {len(paid)} machines, at most {largest:.2f} s from what was charged; "
    return runs, wrong, note + f"{late} removals were under way for longer than a second"


async def check_burn_rate(connection: Any, stage: Cluster) -> list[str]:
    """What the API says once nothing changes any more."""
    machines = (await stage.control("machines"))["machines"]
    known = {row[0] for row in await connection.fetch(KNOWN)}
    charged = sum(each["pricePerHour"] for each in machines if each["id"] in known) * MICROS_PER_E5
    caller = RetryingCaller(stage.addresses, stage.secrets.token, Accounts(), random.Random(0))
    try:
        answer = await caller.ask(BURN_RATE, {})
    finally:
        await caller.close()
    shown = None if answer is None else answer.payload["viewer"]["project"]["spend"]["burnRate"]["amountMicros"]
    return [] if shown == charged else [f"the burn rate is {shown}, and {charged} is charged"]
