"""Instances, operations, create attempts and idempotency keys."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE instance (
            id uuid CONSTRAINT instance_pkey PRIMARY KEY,
            project_id uuid NOT NULL CONSTRAINT instance_project_id_fkey REFERENCES project (id),
            name text NOT NULL,
            status text NOT NULL,
            version bigint NOT NULL DEFAULT 1,
            status_reason text,
            failure_code text,
            failure_message text,
            product_name text NOT NULL,
            gpu_count bigint NOT NULL,
            rootfs_size_gb bigint NOT NULL,
            billing text NOT NULL,
            max_hourly_price_e5 bigint,
            regions jsonb NOT NULL DEFAULT '[]'::jsonb,
            template_id text,
            image text NOT NULL,
            image_auth_id text,
            command text,
            entrypoint text,
            env jsonb NOT NULL DEFAULT '{}'::jsonb,
            ports jsonb NOT NULL DEFAULT '[]'::jsonb,
            labels jsonb NOT NULL DEFAULT '{}'::jsonb,
            health_check jsonb NOT NULL DEFAULT '{}'::jsonb,
            novita_id text,
            novita_status text,
            region text,
            product_id text,
            billing_mode text,
            price_per_hour_e5 bigint,
            endpoints jsonb NOT NULL DEFAULT '[]'::jsonb,
            spot_reclaim_at timestamptz,
            observed_at timestamptz,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(),
            status_since timestamptz NOT NULL DEFAULT now(),
            estimated_ready_at timestamptz,
            running_at timestamptz,
            ready_at timestamptz,
            deleted_at timestamptz,
            CONSTRAINT instance_status_is_known CHECK (status IN (
                'CREATING', 'STARTING', 'RUNNING', 'HEALTH_CHECKING', 'READY', 'STOPPING', 'EXITED', 'RESTARTING',
                'MIGRATING', 'DELETING', 'DELETED', 'FAILED')),
            CONSTRAINT instance_billing_is_known CHECK (billing IN ('SPOT_THEN_ON_DEMAND', 'SPOT', 'ON_DEMAND')),
            CONSTRAINT instance_gpu_count_is_possible CHECK (gpu_count BETWEEN 1 AND 8),
            CONSTRAINT instance_failed_says_why CHECK ((status = 'FAILED') = (failure_code IS NOT NULL)),
            CONSTRAINT instance_deleted_has_a_time CHECK ((status = 'DELETED') = (deleted_at IS NOT NULL)),
            CONSTRAINT instance_ready_has_a_time CHECK (status <> 'READY' OR ready_at IS NOT NULL)
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX instance_name_is_unique_among_the_living ON instance (project_id, name)
        WHERE status <> 'DELETED'
    """)
    op.execute("CREATE UNIQUE INDEX instance_novita_id_is_unique ON instance (novita_id) WHERE novita_id IS NOT NULL")
    op.execute("CREATE INDEX instance_by_project ON instance (project_id, created_at, id)")
    op.execute("""
        CREATE TABLE operation (
            id uuid CONSTRAINT operation_pkey PRIMARY KEY,
            project_id uuid NOT NULL CONSTRAINT operation_project_id_fkey REFERENCES project (id),
            instance_id uuid NOT NULL CONSTRAINT operation_instance_id_fkey REFERENCES instance (id),
            kind text NOT NULL,
            status text NOT NULL,
            phase text NOT NULL,
            version bigint NOT NULL DEFAULT 1,
            error_code text,
            error_message text,
            error_retryable boolean,
            requested_by uuid CONSTRAINT operation_requested_by_fkey REFERENCES token (id) ON DELETE SET NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            started_at timestamptz,
            finished_at timestamptz,
            estimated_ready_at timestamptz,
            CONSTRAINT operation_kind_is_known CHECK (
                kind IN ('CREATE', 'START', 'STOP', 'RESTART', 'MIGRATE', 'UPDATE', 'DELETE')),
            CONSTRAINT operation_status_is_known CHECK (
                status IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'SUPERSEDED')),
            CONSTRAINT operation_phase_is_known CHECK (
                phase IN ('WAITING', 'PLACING', 'PROVISIONING', 'CHECKING_HEALTH', 'STOPPING', 'DELETING', 'OVER')),
            CONSTRAINT operation_over_has_a_time CHECK ((status IN ('QUEUED', 'RUNNING')) = (finished_at IS NULL)),
            CONSTRAINT operation_failed_says_why CHECK ((status = 'FAILED') = (error_code IS NOT NULL))
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX operation_one_open_per_instance ON operation (instance_id)
        WHERE status IN ('QUEUED', 'RUNNING')
    """)
    op.execute("CREATE INDEX operation_by_instance ON operation (instance_id, created_at)")
    op.execute("CREATE INDEX operation_by_project ON operation (project_id, created_at, id)")
    op.execute("""
        CREATE TABLE attempt (
            id uuid CONSTRAINT attempt_pkey PRIMARY KEY,
            operation_id uuid NOT NULL CONSTRAINT attempt_operation_id_fkey REFERENCES operation (id),
            instance_id uuid NOT NULL CONSTRAINT attempt_instance_id_fkey REFERENCES instance (id),
            number bigint NOT NULL,
            marker text,
            region text NOT NULL,
            cluster_id text,
            product_id text,
            billing_mode text,
            price_per_hour_e5 bigint,
            status text NOT NULL,
            reason_code text,
            reason_message text,
            novita_id text,
            created_at timestamptz NOT NULL DEFAULT now(),
            finished_at timestamptz,
            CONSTRAINT attempt_status_is_known CHECK (
                status IN ('ASKING', 'UNKNOWN', 'CREATED', 'REJECTED', 'ABSENT')),
            CONSTRAINT attempt_created_has_novita_id CHECK ((status = 'CREATED') = (novita_id IS NOT NULL)),
            CONSTRAINT attempt_over_has_a_time CHECK ((status IN ('ASKING', 'UNKNOWN')) = (finished_at IS NULL)),
            CONSTRAINT attempt_asked_says_for_what CHECK (
                status = 'REJECTED' OR (marker IS NOT NULL AND cluster_id IS NOT NULL AND product_id IS NOT NULL
                AND billing_mode IS NOT NULL AND price_per_hour_e5 IS NOT NULL))
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX attempt_one_live_per_instance ON attempt (instance_id)
        WHERE status IN ('ASKING', 'UNKNOWN')
    """)
    op.execute("""
        CREATE UNIQUE INDEX attempt_one_created_per_operation ON attempt (operation_id) WHERE status = 'CREATED'
    """)
    op.execute("CREATE UNIQUE INDEX attempt_number_is_unique ON attempt (operation_id, number)")
    op.execute("CREATE UNIQUE INDEX attempt_marker_is_unique ON attempt (marker)")
    op.execute("""
        CREATE TABLE idempotency_key (
            project_id uuid NOT NULL CONSTRAINT idempotency_key_project_id_fkey REFERENCES project (id),
            key text NOT NULL,
            fingerprint bytea NOT NULL,
            operation_id uuid NOT NULL CONSTRAINT idempotency_key_operation_id_fkey REFERENCES operation (id)
                DEFERRABLE INITIALLY DEFERRED,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT idempotency_key_pkey PRIMARY KEY (project_id, key)
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("idempotency_key", "attempt", "operation", "instance"):
        op.execute(f"DROP TABLE {table}")
