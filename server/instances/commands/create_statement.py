"""The two statements of creates: what each would collide with, and all rows of a batch."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import orjson

from server.audit.log import COLUMNS as AUDIT_COLUMNS
from server.catalog.owners import OF_OTHERS
from server.db.tables import Instance, Operation
from server.instances.events import columns


def to_json(rows: list[dict[str, Any]]) -> str:
    return orjson.dumps(rows, default=_id).decode()


def _id(value: Any) -> str:
    """orjson knows uuid.UUID, but not the driver's subclass of it."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError


HAS_GUARDS = """coalesce((SELECT true FROM budget WHERE budget.project_id = new.project LIMIT 1),
                    (SELECT true FROM quota WHERE quota.project_id = new.project LIMIT 1))"""
NAME_TAKEN = """(SELECT true FROM instance
            WHERE project_id = new.project AND name = new.wanted_name AND status <> 'DELETED' LIMIT 1)"""
HAS_WAITS = "(SELECT true FROM capacity_wait WHERE capacity_wait.project_id = new.project LIMIT 1)"
FOREIGN = f"""CASE WHEN new.objects IS NOT NULL
                THEN {OF_OTHERS.format(objects="new.objects", project="new.project")} END"""
# One JSON value, not arrays: of arrays whose length it knows PostgreSQL expects fewer rows, and plans anew each time
# (0.26 ms of its CPU instead of 0.09). No EXISTS: of the 100 names that it expects PostgreSQL would look each up in a
# hash of all instances, read anew for each statement (0.8 ms of its CPU with 3,000 of them).
CONFLICTS = f"""
    SELECT {NAME_TAKEN} AS is_name_taken,
           (SELECT true FROM idempotency_key AS used
            WHERE used.project_id = new.project AND used.key = new.key LIMIT 1) AS is_key_used,
           (SELECT to_jsonb(policy) FROM lifetime_policy AS policy WHERE policy.project_id = new.project) AS policy,
           {FOREIGN},
           {HAS_GUARDS},
           {HAS_WAITS}
    FROM ROWS FROM (jsonb_to_recordset($1::jsonb) AS (project uuid, wanted_name text, key text, objects jsonb))
        WITH ORDINALITY AS new (project, wanted_name, key, objects, place)
    ORDER BY place
"""

# The same question in the statement that writes: a create that would collide, or whose project has a rule, is left out.
# Its key is not reserved either, and is looked for by the key's own insert.
UNASKED = f"""unexpected AS MATERIALIZED (
        SELECT id
        FROM jsonb_to_recordset($unasked::jsonb) AS new (id uuid, project uuid, wanted_name text, objects jsonb)
        WHERE coalesce({NAME_TAKEN}, {HAS_GUARDS}, {HAS_WAITS},
                       (SELECT true FROM lifetime_policy AS policy WHERE policy.project_id = new.project),
                       {FOREIGN} IS NOT NULL)
    ), """
EXPECTED = " AND {id} NOT IN (SELECT id FROM unexpected)"
# Keys come first: of many calls with the same key, the others wait there for the first to commit, then find the key
# taken and write nothing. Keys are inserted in one order, so that two processes never deadlock on them.
# A taken name leaves out a create without a key. For a create with a key it fails the statement, because the key is
# already inserted. The two events of an instance are in order, so their numbers are drawn in that order.
# A volume that is being deleted is waited for. If it is no longer there, the null in its place fails the statement.
# Rows of wide tables are read from json: building a jsonb of them first takes longer (0.03 ms of 0.46).
WITH_KEYS = """
    request AS MATERIALIZED (
        SELECT * FROM unnest($operation_ids::uuid[], $instance_ids::uuid[], $project_ids::uuid[], $keys::text[],
                             $fingerprints::bytea[])
            AS each (operation_id, instance_id, project_id, key, fingerprint)
    ), reserved AS (
        INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id)
        SELECT project_id, key, fingerprint, operation_id FROM request WHERE true{key_expected}
        ORDER BY project_id, key
        ON CONFLICT DO NOTHING
        RETURNING operation_id
    ), with_key AS (
        INSERT INTO instance ({instance})
        SELECT {instance} FROM json_populate_recordset(NULL::instance, $instances_with_key::json) AS new
        WHERE new.id IN (SELECT instance_id FROM request JOIN reserved USING (operation_id))
        ORDER BY new.project_id, new.name
        RETURNING id
    ), without_key AS ({without_key}
    ), added AS MATERIALIZED (
        SELECT id FROM without_key UNION ALL SELECT id FROM with_key
    )"""
WITHOUT_KEY = """
        INSERT INTO instance ({instance})
        SELECT {instance} FROM json_populate_recordset(NULL::instance, $instances::json) AS new
        WHERE true{expected}
        ORDER BY new.project_id, new.name
        ON CONFLICT (project_id, name) WHERE status <> 'DELETED' DO NOTHING
        RETURNING id"""
ALWAYS = """operations AS (
        INSERT INTO operation ({operation})
        SELECT {operation} FROM json_populate_recordset(NULL::operation, $operations::json) AS new
        WHERE new.instance_id IN (SELECT id FROM added)
    ), events AS (
        INSERT INTO outbox (id, type, project_id, instance_id, operation_id, caused_by, data)
        SELECT id, type, project_id, instance_id, operation_id, caused_by, data
        FROM jsonb_populate_recordset(NULL::outbox, $events::jsonb) WITH ORDINALITY AS new
        WHERE new.instance_id IN (SELECT id FROM added)
        ORDER BY new.ordinality
    ), jobs AS (
        INSERT INTO job (kind, args, priority, project_id, instance_id, origin, unique_key, run_at, due_at, pause)
        SELECT kind, args, priority, project_id, instance_id, origin, unique_key, coalesce(at, start),
               coalesce(at, start) + make_interval(secs => due_delay), CASE WHEN at IS NULL THEN interval '0' END
        FROM clock_timestamp() AS start,
             jsonb_to_recordset($jobs::jsonb) AS new (kind text, args jsonb, priority smallint, project_id uuid,
                                                      instance_id uuid, origin text, due_delay float8, unique_key text,
                                                      at timestamptz)
        WHERE new.instance_id IN (SELECT id FROM added)
    ), audited AS (
        INSERT INTO audit_event ({audit})
        SELECT {audit} FROM jsonb_to_recordset($audit::jsonb) AS new (
            id uuid, project_id uuid, token_id uuid, request_id text, mutation text, input_digest bytea, target text,
            outcome text, error_code text, instance_id uuid)
        WHERE new.instance_id IN (SELECT id FROM added)
    )"""
DELIVERIES = """deliveries AS (
        INSERT INTO delivery (id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order,
                              attempts, counted)
        SELECT id, project_id, instance_id, event_id, event_type, url, body, status, keeps_order, attempts, counted
        FROM jsonb_populate_recordset(NULL::delivery, $deliveries::jsonb) AS new
        WHERE new.instance_id IN (SELECT id FROM added)
    )"""
ATTACHMENTS = """mounted AS MATERIALIZED (
        SELECT * FROM jsonb_populate_recordset(NULL::volume_attachment, $attachments::jsonb)
    ), available AS MATERIALIZED (
        SELECT id FROM volume WHERE id IN (SELECT volume_id FROM mounted) AND status = 'AVAILABLE'
        ORDER BY id
        FOR KEY SHARE
    ), attachments AS (
        INSERT INTO volume_attachment (instance_id, volume_id, is_exclusive)
        SELECT instance_id, available.id, is_exclusive
        FROM mounted LEFT JOIN available ON available.id = volume_id
        WHERE instance_id IN (SELECT id FROM added)
        ORDER BY volume_id
    )"""
NAMED = re.compile(r"\$([a-z_]+)")


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """Returns the ids of the instances that were added."""

    sql: str
    parameters: tuple[str, ...]


@cache
def insert_statement(*, has_keys: bool, has_unasked: bool, has_deliveries: bool, has_volumes: bool) -> InsertStatement:
    """Without the parts that a batch has no rows for: executing an empty part takes PostgreSQL 10 to 20 us."""
    parts = [WITH_KEYS if has_keys else "added AS ({without_key}\n    )", ALWAYS]
    parts += [DELIVERIES] if has_deliveries else []
    parts += [ATTACHMENTS] if has_volumes else []
    text = "WITH " + (UNASKED if has_unasked else "") + ", ".join(parts) + "\n    SELECT id FROM added"
    sql = text.replace("{without_key}", WITHOUT_KEY).format(
        expected=EXPECTED.format(id="new.id") if has_unasked else "",
        key_expected=EXPECTED.format(id="instance_id") if has_unasked else "",
        instance=", ".join(columns(Instance)),
        operation=", ".join(columns(Operation)),
        audit=AUDIT_COLUMNS,
    )
    names = tuple(dict.fromkeys(NAMED.findall(sql)))
    return InsertStatement(NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql), names)
