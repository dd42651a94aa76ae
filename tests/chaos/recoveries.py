"""The invariant of recovery: one machine serves, two exist at most, and what was replaced is gone.

The machines are those that the simulator counts, also those that its list does not show yet.
"""

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tests.support.accounting import BEING_REMOVED, MARKED

SHARE = 1 / 3  # of the instances without a lifetime
PREFIX = "r-"  # of their names
MOST = 2  # machines of one instance

OWNERS = "SELECT marker, instance_id::text AS id FROM attempt WHERE marker IS NOT NULL"
REPLACED = "SELECT novita_id FROM machine WHERE end_reason = 'REPLACED'"
SERVING = "SELECT id::text, novita_id FROM instance WHERE novita_id IS NOT NULL AND status <> 'DELETED'"
# What each event says about the machine that serves, in their order.
HISTORY = """
    SELECT instance_id::text AS id, data #>> '{instance,novita_id}' AS machine FROM event
    WHERE data #>> '{instance,novita_id}' IS NOT NULL ORDER BY instance_id, position
"""
# Recoveries between two attempts, machines that are to be reclaimed or were lost, and those being removed.
LEFT = """
    SELECT (SELECT count(*) FROM instance WHERE recovery_state ? 'since' AND NOT recovery_state ? 'ended'
                                            AND status IN ('EXITED', 'FAILED'))
         + (SELECT count(*) FROM instance WHERE spot_reclaim_at > now() - interval '30 s'
                                            AND status IN ('RUNNING', 'HEALTH_CHECKING', 'READY', 'STOPPING'))
         + (SELECT count(*) FROM instance WHERE novita_id = ANY($1::text[]) AND novita_status <> 'removed'
                                            AND status IN ('RUNNING', 'HEALTH_CHECKING', 'READY', 'STOPPING', 'FAILED'))
         + (SELECT count(*) FROM machine WHERE removing_from IS NOT NULL AND ended_at IS NULL)
"""


def draw_recovery(chance: random.Random) -> dict[str, Any]:
    recovery: dict[str, Any] = {"allowDataLoss": True, "drain": 2, "giveUpAfter": 120}
    recovery["replaceBeforeReclaim"] = chance.random() < 0.5
    if chance.random() < 0.6:
        recovery["steps"] = ["RELOCATE"]
    return recovery


def crowds(
    machines: Iterable[Mapping[str, Any]], owners: Mapping[str, str], replaced: Collection[str]
) -> tuple[int, list[str]]:
    """How many instances have machines, and one sentence per violation. `replaced` was read before the machines."""
    there: dict[str, list[str]] = defaultdict(list)
    wrong: list[str] = []
    for machine in machines:
        marked = MARKED.search(machine["name"])
        owner = None if marked is None else owners.get(marked.group(1))
        if owner is None or machine["status"] in BEING_REMOVED:
            continue
        there[owner].append(machine["id"])
        if machine["id"] in replaced:
            wrong.append(f"machine {machine['id']} of instance {owner} was replaced and is still there")
    wrong += [
        f"instance {owner} has machines {', '.join(sorted(ids))}" for owner, ids in there.items() if len(ids) > MOST
    ]
    return len(there), wrong


async def check_at_rest(connection: Any, machines: Sequence[Mapping[str, Any]]) -> tuple[int, list[str], str]:
    """How many machines and events were checked, what was wrong, and what has happened."""
    owners = {row["marker"]: row["id"] for row in await connection.fetch(OWNERS)}
    serving = {row["id"]: row["novita_id"] for row in await connection.fetch(SERVING)}
    history = [(row["id"], row["machine"]) for row in await connection.fetch(HISTORY)]
    wrong = left_over(machines, owners, serving) + returns(history)
    attempts = await connection.fetchval("SELECT count(*) FROM operation WHERE reason = 'RECOVERY'")
    moved = await connection.fetchval("SELECT count(*) FROM event WHERE type = 'instance.relocated'")
    return len(machines) + len(history), wrong, f"recovery: {attempts} attempts, {moved} relocated"


def left_over(
    machines: Iterable[Mapping[str, Any]], owners: Mapping[str, str], serving: Mapping[str, str]
) -> list[str]:
    """At rest: machines that do not serve their instance."""
    found: list[str] = []
    for machine in machines:
        marked = MARKED.search(machine["name"])
        owner = None if marked is None else owners.get(marked.group(1))
        if owner is not None and machine["status"] not in BEING_REMOVED and serving.get(owner) != machine["id"]:
            found.append(f"machine {machine['id']} does not serve instance {owner}, which has {serving.get(owner)}")
    return found


def returns(history: Iterable[tuple[str, str]]) -> list[str]:
    """Instances whose events show a machine again after another one; `history` is sorted by instance."""
    wrong: list[str] = []
    for owner, rows in groupby(history, key=lambda each: each[0]):
        served = [machine for machine, _ in groupby(machine for _, machine in rows)]
        if len(set(served)) < len(served):
            wrong.append(f"instance {owner} was served by {', '.join(served)}")
    return wrong
