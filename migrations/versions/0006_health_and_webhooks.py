"""Probe results, and webhooks: secrets, deliveries, attempts."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE instance
            ADD COLUMN health text,
            ADD COLUMN webhook_url text,
            ADD COLUMN webhook_disabled_at timestamptz
    """)
    op.execute("""
        CREATE TABLE probe_result (
            instance_id uuid CONSTRAINT probe_result_instance_id_fkey REFERENCES instance ON DELETE CASCADE,
            port bigint NOT NULL,
            type text NOT NULL,
            address text,
            is_healthy boolean NOT NULL,
            http_status bigint,
            latency_ms double precision NOT NULL,
            error_kind text,
            message text,
            attempts bigint NOT NULL DEFAULT 1,
            checked_at timestamptz NOT NULL,
            CONSTRAINT probe_result_pkey PRIMARY KEY (instance_id, port),
            CONSTRAINT probe_result_unhealthy_says_why CHECK (is_healthy = (error_kind IS NULL)),
            CONSTRAINT probe_result_was_probed CHECK (attempts >= 1)
        )
    """)
    op.execute("""
        CREATE TABLE webhook_secret (
            project_id uuid CONSTRAINT webhook_secret_project_id_fkey REFERENCES project ON DELETE CASCADE,
            generation bigint NOT NULL,
            salt bytea NOT NULL,
            key_check bytea NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            retires_at timestamptz,
            CONSTRAINT webhook_secret_pkey PRIMARY KEY (project_id, generation)
        )
    """)
    op.execute("""
        CREATE TABLE delivery (
            id uuid CONSTRAINT delivery_pkey PRIMARY KEY,
            seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
            project_id uuid NOT NULL CONSTRAINT delivery_project_id_fkey REFERENCES project,
            instance_id uuid CONSTRAINT delivery_instance_id_fkey REFERENCES instance,
            event_id uuid,
            event_type text NOT NULL,
            url text NOT NULL,
            body text NOT NULL,
            status text NOT NULL,
            keeps_order boolean NOT NULL,
            attempts bigint NOT NULL DEFAULT 0,
            counted bigint NOT NULL DEFAULT 0,
            error_code text,
            created_at timestamptz NOT NULL DEFAULT now(),
            asked_at timestamptz NOT NULL DEFAULT now(),
            next_attempt_at timestamptz,
            finished_at timestamptz,
            CONSTRAINT delivery_status_is_known CHECK (status IN ('PENDING', 'DELIVERED', 'FAILED')),
            CONSTRAINT delivery_over_has_a_time CHECK ((status = 'PENDING') = (finished_at IS NULL)),
            CONSTRAINT delivery_failed_says_why CHECK (status <> 'FAILED' OR error_code IS NOT NULL)
        )
    """)
    op.execute("""
        CREATE INDEX delivery_waiting_by_instance ON delivery (instance_id, seq)
        WHERE status = 'PENDING' AND keeps_order
    """)
    op.execute("CREATE INDEX delivery_by_project ON delivery (project_id, created_at, id)")
    op.execute("CREATE INDEX delivery_by_instance ON delivery (instance_id, created_at, id)")
    op.execute("CREATE INDEX delivery_over ON delivery (finished_at) WHERE finished_at IS NOT NULL")
    op.execute("""
        CREATE TABLE delivery_attempt (
            delivery_id uuid CONSTRAINT delivery_attempt_delivery_id_fkey REFERENCES delivery ON DELETE CASCADE,
            number bigint NOT NULL,
            started_at timestamptz NOT NULL,
            finished_at timestamptz,
            http_status bigint,
            error_code text,
            message text,
            CONSTRAINT delivery_attempt_pkey PRIMARY KEY (delivery_id, number)
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("delivery_attempt", "delivery", "webhook_secret", "probe_result"):
        op.execute(f"DROP TABLE {table}")
    op.execute("""
        ALTER TABLE instance DROP COLUMN health, DROP COLUMN webhook_url, DROP COLUMN webhook_disabled_at
    """)
