"""Whether the event log of a chaos run tells every change of every row, in order."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

VERSIONS = """
    SELECT data -> '{table}' ->> 'id' AS id, (data -> '{table}' ->> 'version')::int AS version
    FROM event WHERE data ? '{table}' ORDER BY position
"""
ROWS = "SELECT id::text AS id, version FROM {table}"
# In the order in which they were to be sent; a redelivered or rejected message keeps no order.
DELIVERIES = """
    SELECT id, instance_id FROM delivery WHERE status = 'DELIVERED' AND keeps_order AND instance_id IS NOT NULL
    ORDER BY instance_id, seq
"""


def version_problems(what: str, told: Iterable[tuple[str, int]], rows: Mapping[str, int]) -> list[str]:
    """`told` are (id, version) of the snapshots in the log, in its order; `rows` the versions of the rows."""
    by_id: dict[str, list[int]] = defaultdict(list)
    for id, version in told:
        by_id[id].append(version)
    wrong: list[str] = []
    for id, version in rows.items():
        versions = by_id[id]
        missing = sorted(set(range(1, version + 1)) - set(versions))
        if missing:
            wrong.append(f"no event tells versions {missing} of {what} {id}, which has version {version}")
        if versions != sorted(versions):
            wrong.append(f"the events of {what} {id} come in the order of versions {versions}")
    return wrong


def order_problems(sent: Iterable[tuple[str, str]], arrivals: Iterable[str]) -> list[str]:
    """`sent` are (message, instance) in the order of their events; `arrivals` the messages as they first arrived."""
    place = {id: number for number, id in enumerate(arrivals)}
    by_instance: dict[str, list[str]] = defaultdict(list)
    for id, instance in sent:
        if id in place:
            by_instance[instance].append(id)
    return [
        f"webhooks of instance {instance} arrived in another order than their events"
        for instance, ids in by_instance.items()
        if (places := [place[id] for id in ids]) != sorted(places)
    ]
