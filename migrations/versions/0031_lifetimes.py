"""Adds the limits of an instance's lifetime, its next step, why the server began an operation, and project policies."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE instance
            ADD COLUMN IF NOT EXISTS lifetime jsonb,
            ADD COLUMN IF NOT EXISTS lifetime_state jsonb,
            ADD COLUMN IF NOT EXISTS lifetime_due_at timestamptz,
            ADD COLUMN IF NOT EXISTS lifetime_action text,
            ADD COLUMN IF NOT EXISTS lifetime_reason text,
            ADD COLUMN IF NOT EXISTS heartbeat_at timestamptz,
            ADD COLUMN IF NOT EXISTS run_accepted_at timestamptz
    """)
    op.execute("ALTER TABLE operation ADD COLUMN IF NOT EXISTS reason text")
    op.execute("""
        CREATE TABLE IF NOT EXISTS lifetime_policy (
            project_id uuid NOT NULL,
            required boolean NOT NULL DEFAULT false,
            max_duration_at_most_s bigint,
            default_max_duration_s bigint,
            default_idle jsonb,
            updated_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT lifetime_policy_pkey PRIMARY KEY (project_id),
            CONSTRAINT lifetime_policy_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id)
        )
    """)
    op.execute("""
        CREATE TABLE IF NOT EXISTS metrics_reading (
            only_row boolean NOT NULL,
            next_at timestamptz NOT NULL,
            CONSTRAINT metrics_reading_pkey PRIMARY KEY (only_row),
            CONSTRAINT metrics_reading_has_one_row CHECK (only_row)
        )
    """)
    create_index("instance_by_end_of_lifetime", "instance (lifetime_due_at) WHERE lifetime_due_at IS NOT NULL")


def downgrade() -> None:
    drop_index("instance_by_end_of_lifetime")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE metrics_reading")
    op.execute("DROP TABLE lifetime_policy")
    op.execute("ALTER TABLE operation DROP COLUMN reason")
    op.execute("""
        ALTER TABLE instance
            DROP COLUMN lifetime,
            DROP COLUMN lifetime_state,
            DROP COLUMN lifetime_due_at,
            DROP COLUMN lifetime_action,
            DROP COLUMN lifetime_reason,
            DROP COLUMN heartbeat_at,
            DROP COLUMN run_accepted_at
    """)
