"""The invariant of billing: every machine with our marker is visible, and serves one row or is being dealt with.

`machines_unaccounted(world)` is for tests with a `World`. Load tests and chaos, which have other processes, collect the
same facts themselves (`read_facts` by SQL, machines from the simulator, ids from `fleet`) and call `judge`. Both return
one sentence per violation; an empty list is the invariant. Give reconcile one run before, unless the test is about the
time before it.
"""

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from server.clock import new_id
from server.instances.queries.fleet import fleet
from tests.support.world import World

MARKED = re.compile(r"(?:^|-)(pl(?:[0-9a-f]{16}|[0-9a-f]{20}))$")
BEING_REMOVED = frozenset({"toRemove", "removing", "removed"})

# The machines that serve, and those that a job is removing or an open operation is about to use.
ROWS = """
    SELECT novita_id FROM instance WHERE novita_id IS NOT NULL AND status <> 'DELETED'
    UNION
    SELECT novita_id FROM machine WHERE ended_at IS NULL AND removing_from IS NOT NULL
    UNION
    SELECT novita_id FROM machine JOIN operation USING (instance_id)
    WHERE ended_at IS NULL AND operation.status IN ('QUEUED', 'RUNNING')
"""
ATTEMPTS = "SELECT marker, operation_id::text AS operation, status FROM attempt WHERE marker IS NOT NULL"
REPORTED = """
    SELECT DISTINCT data ->> 'novita_id' AS novita_id FROM (
        SELECT type, data FROM event UNION ALL SELECT type, data FROM outbox
    ) AS log WHERE type = 'instance.orphan_found'
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database says: machines of rows, attempts by marker, and machines reported by an event."""

    served: frozenset[str]
    attempts: Mapping[str, tuple[str, str]]  # marker -> operation, status
    reported: frozenset[str]


async def read_facts(fetch: Callable[[str], Awaitable[Sequence[Mapping[str, Any]]]]) -> Facts:
    """`fetch` runs one query: `connection.fetch` of asyncpg or `world.rows`."""
    return Facts(
        served=frozenset(row["novita_id"] for row in await fetch(ROWS)),
        attempts={row["marker"]: (row["operation"], row["status"]) for row in await fetch(ATTEMPTS)},
        reported=frozenset(row["novita_id"] for row in await fetch(REPORTED)),
    )


def judge(machines: Iterable[tuple[str, str, str]], facts: Facts, visible: Iterable[str]) -> list[str]:
    """One sentence per violation.

    `machines` are (id, name, status) of all machines at the provider; `visible` the ids that `fleet` shows to any
    project. A machine is accounted for if a row has it, it is being removed, its
    attempt is in doubt, an event reported it, or no attempt of this database made it (then `fleet` is the report).
    """
    shown = set(visible)
    violations: list[str] = []
    by_create: dict[str, list[str]] = defaultdict(list)
    for novita_id, name, status in machines:
        marked = MARKED.search(name)
        if marked is None or status in BEING_REMOVED:
            continue
        operation, attempt = facts.attempts.get(marked.group(1), (marked.group(1), None))
        by_create[operation].append(novita_id)
        if novita_id not in shown:
            violations.append(f"machine {novita_id} ({name}, {status}) is not in fleet")
        is_dealt_with = novita_id in facts.reported or attempt in ("ASKING", "UNKNOWN", None)
        if novita_id not in facts.served and not is_dealt_with:
            violations.append(f"machine {novita_id} ({name}, {status}) serves no row; its attempt is {attempt}")
    violations += [
        f"machines {', '.join(sorted(ids))} were made for one create" for ids in by_create.values() if len(ids) > 1
    ]
    return violations


async def machines_unaccounted(world: World) -> list[str]:
    """The violations now, as `fleet` shows the machines to their projects, and those of others to an administrator."""
    facts = await read_facts(world.rows)
    projects = [row["id"] for row in await world.rows("SELECT id FROM project")]
    visible: set[str] = set()
    for project_id, includes_all in [*((each, False) for each in projects), (new_id(), True)]:
        by = replace(world.caller, project_id=project_id)
        shown = await fleet(world.database, world.reader, by=by, include_novita_only=includes_all)
        visible |= {item.snapshot.id for item in shown.items if item.snapshot is not None}
        if shown.problem is not None:  # the list could not be read: a machine is shown by the row that it serves
            visible |= {str(item.instance.novita_id) for item in shown.items if item.instance is not None}
    machines = [(each.id, each.name, each.status) for each in world.machines()]
    return judge(machines, facts, visible)
