"""The event log: outbox, the partitioned log, and the row with its identity."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # CACHE 1: the order within an instance depends on numbers being drawn one at a time, in order.
    op.execute("""
        CREATE TABLE outbox (
            seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) CONSTRAINT outbox_pkey PRIMARY KEY,
            id uuid NOT NULL,
            type text NOT NULL,
            project_id uuid NOT NULL,
            instance_id uuid,
            operation_id uuid,
            caused_by uuid,
            data jsonb NOT NULL,
            occurred_at timestamptz NOT NULL DEFAULT clock_timestamp()
        )
    """)
    # Nearly always empty, and every row is soon dead: a share of its size would mean always or never.
    op.execute("""
        ALTER TABLE outbox SET (
            autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
            autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000,
            autovacuum_vacuum_cost_delay = 0
        )
    """)
    op.execute("""
        CREATE TABLE event (
            position bigint NOT NULL,
            id uuid NOT NULL,
            type text NOT NULL,
            project_id uuid NOT NULL,
            instance_id uuid,
            operation_id uuid,
            caused_by uuid,
            data jsonb NOT NULL,
            occurred_at timestamptz NOT NULL,
            CONSTRAINT event_pkey PRIMARY KEY (position)
        ) PARTITION BY RANGE (position)
    """)
    op.execute("CREATE INDEX event_by_project ON event (project_id, position)")
    op.execute("CREATE INDEX event_by_instance ON event (instance_id, position)")
    # No partition and no row yet: the sequencer makes the partitions, and the first process names the log.
    op.execute("""
        CREATE TABLE event_log (
            is_the_only_row boolean NOT NULL DEFAULT true CONSTRAINT event_log_pkey PRIMARY KEY,
            epoch bigint NOT NULL,
            home text NOT NULL,
            head bigint NOT NULL,
            CONSTRAINT event_log_has_one_row CHECK (is_the_only_row)
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE event_log")
    op.execute("DROP TABLE event")
    op.execute("DROP TABLE outbox")
