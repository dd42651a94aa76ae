"""Moves an instance and its limits, or everything, into the past."""

from datetime import timedelta

from tests.support.world import World

AGE = """
    UPDATE instance SET
        run_accepted_at = run_accepted_at - $2::interval,
        heartbeat_at = heartbeat_at - $2::interval,
        status_since = status_since - $2::interval,
        lifetime = CASE WHEN lifetime ? 'deadline' THEN lifetime || jsonb_build_object('deadline',
            to_jsonb((lifetime ->> 'deadline')::timestamptz - $2::interval)) ELSE lifetime END,
        lifetime_state = (SELECT jsonb_object_agg(key, CASE WHEN key IN
            ('since', 'floor', 'busy_at', 'due', 'retry_at', 'overdue_at', 'read_at')
            THEN to_jsonb((value #>> '{}')::timestamptz - $2::interval)
            WHEN key IN ('told', 'told_heartbeat')
            THEN jsonb_build_array((value ->> 0)::timestamptz - $2::interval, value -> 1)
            ELSE value END)
            FROM jsonb_each(lifetime_state)),
        lifetime_due_at = lifetime_due_at - $2::interval
    WHERE id = $1
"""

TIMES = """
    SELECT table_name, string_agg(format('%1$I = %1$I - $1::interval', column_name), ', ') AS changes
    FROM information_schema.columns
    WHERE table_schema = current_schema() AND data_type = 'timestamp with time zone' AND is_generated = 'NEVER'
      AND table_name IN ('instance', 'machine', 'operation', 'attempt', 'job', 'job_schedule', 'cost_entry')
    GROUP BY table_name
"""


async def age_all(world: World, by: timedelta) -> None:
    """So much time passes for all instances, machines, operations and jobs."""
    for row in await world.rows(TIMES):
        await world.execute(f"UPDATE {row['table_name']} SET {row['changes']}", by)
