"""The rows that bench/reads.py reads, and the documents that it sends."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from graphql import FragmentDefinitionNode, OperationDefinitionNode, Visitor, parse, print_ast, visit

ROOT = Path(__file__).parents[1]
INSTANCES = 2000
REGIONS = ("AS-SGP-02", "CN-HK-01", "AS-IN-01", "US-CA-06", "EU-FR-01")
FIELDS = (
    *("id", "name", "status", "statusSince", "version", "productName", "gpuCount", "region", "image", "createdAt"),
    "updatedAt",
    "pricePerHour { amountMicros currency }",
)
SELECTION = " ".join(FIELDS)

# Whole seconds, because a Date of JavaScript has no microseconds. Every instance has labels, endpoints, two operations,
# attempts and probe results, as after some weeks of use.
ROWS = (
    """
    INSERT INTO instance (id, project_id, name, status, failure_code, failure_message, ready_at, running_at,
                          product_name, gpu_count, rootfs_size_gb, billing, image, region, regions, billing_mode,
                          price_per_hour_e5, labels, ports, endpoints, novita_id, novita_status, env,
                          webhook_url, created_at, updated_at, status_since)
    SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $2::uuid, 'worker-' || n, status,
           CASE WHEN status = 'FAILED' THEN 'HEALTH_CHECK_FAILED' END,
           CASE WHEN status = 'FAILED' THEN 'No endpoint responds.' END, t, t, 'RTX 4090 24GB', 1 + n % 4, 60, 'SPOT',
           'nginx:1.27', ($3::text[])[1 + n % cardinality($3::text[])], to_jsonb($3::text[]), 'spot', 20000 + n,
           jsonb_build_object('team', 't' || n % 7, 'run', 'r' || n),
           '[{"port": 8080, "type": "http"}, {"port": 22, "type": "tcp"}]',
           jsonb_build_array(jsonb_build_object('port', 8080, 'type', 'http', 'address', 'http://a' || n || '.test')),
           'n' || n, CASE WHEN status = 'EXITED' THEN 'exited' ELSE 'running' END, '{"MODE": "train"}',
           'https://hooks.example.test/' || n, t, t, t
    FROM generate_series(1, $1::int) AS n,
         LATERAL (SELECT timestamptz '2026-01-01 00:00Z' + n * interval '1 s',
                         CASE WHEN n % 10 = 1 THEN 'FAILED' WHEN n % 5 = 0 THEN 'EXITED' ELSE 'READY' END
                 ) AS x (t, status)
    """,
    """
    INSERT INTO operation (id, project_id, instance_id, kind, status, phase, requested_by, created_at, started_at,
                           finished_at)
    SELECT gen_random_uuid(), $1::uuid, instance.id, kind, 'SUCCEEDED', 'OVER', $2::uuid, instance.created_at,
           instance.created_at, instance.created_at
    FROM instance, (VALUES ('CREATE'), ('RESTART')) AS kinds (kind)
    """,
    """
    INSERT INTO attempt (id, operation_id, instance_id, number, region, billing_mode, price_per_hour_e5, status,
                         reason_code, reason_message, created_at, finished_at)
    SELECT gen_random_uuid(), id, instance_id, number, 'AS-SGP-02', 'spot', 20000, 'REJECTED', 'NO_STOCK', 'No stock.',
           created_at, created_at
    FROM operation, generate_series(1, 2) AS number WHERE kind = 'CREATE'
    """,
    """
    INSERT INTO probe_result (instance_id, port, type, address, is_healthy, http_status, latency_ms, checked_at)
    SELECT id, port, type, 'a.test', true, 200, 12.5, created_at
    FROM instance, (VALUES (8080, 'http'), (22, 'tcp')) AS ports (port, type)
    """,
    """
    INSERT INTO delivery (id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order, attempts,
                          finished_at)
    SELECT gen_random_uuid(), project_id, id, gen_random_uuid(), 'instance.ready', webhook_url, '{}', 'DELIVERED', true,
           1, created_at
    FROM instance
    """,
    """
    INSERT INTO delivery_attempt (delivery_id, number, started_at, finished_at, http_status)
    SELECT id, 1, finished_at, finished_at, 200 FROM delivery
    """,
)


async def fill(url: str, instances: int = INSTANCES) -> UUID:
    """Rows of the project that has a token; returns its id."""
    connection = await asyncpg.connect(url)
    try:
        token_id, project_id = await connection.fetchrow("SELECT id, project_id FROM token") or (None, None)
        assert project_id is not None
        await connection.execute(ROWS[0], instances, project_id, list(REGIONS))
        await connection.execute(ROWS[1], project_id, token_id)
        for each in ROWS[2:]:
            await connection.execute(each)
        await connection.execute("ANALYZE")
        return project_id
    finally:
        await connection.close()


class _Spreads(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_fragment_spread(self, node: Any, *_: Any) -> None:
        self.names.add(node.name.value)


def documents_of(folder: Path) -> dict[str, str]:
    """The queries of a folder's .graphql files by name, each with its fragments, as the client sends them."""
    definitions = [each for file in sorted(folder.glob("*.graphql")) for each in parse(file.read_text()).definitions]
    fragments = {each.name.value: each for each in definitions if isinstance(each, FragmentDefinitionNode)}
    found: dict[str, str] = {}
    for each in definitions:
        if isinstance(each, OperationDefinitionNode) and each.operation.value == "query" and each.name is not None:
            used, todo = dict[str, Any](), [each]
            while todo:
                spreads = _Spreads()
                visit(todo.pop(), spreads)
                new = spreads.names - used.keys()
                used |= {name: fragments[name] for name in new}
                todo += [fragments[name] for name in new]
            found[each.name.value] = "\n\n".join(print_ast(part) for part in (each, *used.values()))
    return found


def same(query: str, **variables: Any) -> Iterator[bytes]:
    return itertools.repeat(orjson.dumps({"query": query, "variables": variables}))


def each_of(query: str, name: str, values: list[Any], **variables: Any) -> Iterator[bytes]:
    """One variable takes each of the values in turn."""
    return itertools.cycle([orjson.dumps({"query": query, "variables": {**variables, name: each}}) for each in values])


def generated() -> Iterator[bytes]:
    """Documents that were never sent: other names, and the fields in another order."""
    order = random.Random(1)
    for number in itertools.count():
        fields = list(FIELDS)
        order.shuffle(fields)
        query = f"query List{number} {{ instances(first: 50) {{ nodes {{ {' '.join(fields)} }} }} }}"
        yield orjson.dumps({"query": query})
