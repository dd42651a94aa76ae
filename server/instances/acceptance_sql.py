"""The two statements of accepted creates: what is looked at, and what is written."""

# Whether the name is taken, and whether the key is known.
LOOK = """
    SELECT EXISTS (SELECT FROM instance
                   WHERE project_id = wanted.project AND name = wanted.told AND status <> 'DELETED') AS is_taken,
           wanted.key IS NOT NULL AND
           EXISTS (SELECT FROM idempotency_key AS known
                   WHERE known.project_id = wanted.project AND known.key = wanted.key) AS is_known
    FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS wanted (project, told, key, place)
    ORDER BY place
"""

# Keys come first: of many calls with the same one, the others wait there for the first to commit, find it taken and
# write nothing. They are taken in one order, so that two processes never wait for each other's.
# A name that is taken leaves a create without a key out; one with a key fails the statement, because its key is
# already in there. An instance's two events stand in their order, so their numbers are drawn in it.
ACCEPT = """
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::uuid[], $7::jsonb[],
                             $8::interval[], $9::text[])
            AS each (operation_id, instance_id, project_id, key, fingerprint, caused_by, args, behind, origin)
    ), taken AS (
        INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id)
        SELECT project_id, key, fingerprint, operation_id FROM wanted WHERE key IS NOT NULL ORDER BY project_id, key
        ON CONFLICT DO NOTHING
        RETURNING operation_id
    ), without_key AS (
        INSERT INTO instance ({instance})
        SELECT {instance} FROM jsonb_populate_recordset(NULL::instance, $10::jsonb) AS new
        ORDER BY new.project_id, new.name
        ON CONFLICT (project_id, name) WHERE status <> 'DELETED' DO NOTHING
        RETURNING id
    ), with_key AS (
        INSERT INTO instance ({instance})
        SELECT {instance} FROM jsonb_populate_recordset(NULL::instance, $11::jsonb) AS new
        WHERE new.id IN (SELECT instance_id FROM wanted JOIN taken USING (operation_id))
        ORDER BY new.project_id, new.name
        RETURNING id
    ), added AS MATERIALIZED (
        SELECT id FROM without_key UNION ALL SELECT id FROM with_key
    ), begun AS (
        INSERT INTO operation ({operation})
        SELECT {operation} FROM jsonb_populate_recordset(NULL::operation, $12::jsonb) AS new
        WHERE new.instance_id IN (SELECT id FROM added)
    ), told AS (
        INSERT INTO outbox (id, type, project_id, instance_id, operation_id, caused_by, data)
        SELECT event.id, event.type, wanted.project_id, wanted.instance_id, wanted.operation_id, wanted.caused_by,
               event.data
        FROM unnest($13::uuid[], $14::uuid[], $15::text[], $16::jsonb[]) WITH ORDINALITY
                 AS event (id, instance_id, type, data, place)
             JOIN wanted USING (instance_id)
        WHERE event.instance_id IN (SELECT id FROM added)
        ORDER BY event.place
    ), delivered AS (
        INSERT INTO delivery ({delivery})
        SELECT {delivery} FROM jsonb_populate_recordset(NULL::delivery, $17::jsonb) AS new
        WHERE new.instance_id IN (SELECT id FROM added)
    ), queued AS (
        INSERT INTO job (kind, args, priority, project_id, instance_id, origin, run_at, due_at)
        SELECT new.kind, new.args, new.priority, wanted.project_id, wanted.instance_id, wanted.origin,
               start, start + new.behind
        FROM clock_timestamp() AS start,
             (SELECT instance_id, $18::text AS kind, args, $19::smallint AS priority, behind FROM wanted
              UNION ALL
              SELECT * FROM unnest($20::uuid[], $21::text[], $22::jsonb[], $23::smallint[], $24::interval[])
             ) AS new (instance_id, kind, args, priority, behind)
             JOIN wanted USING (instance_id)
        WHERE new.instance_id IN (SELECT id FROM added)
    )
    SELECT id FROM added
"""
