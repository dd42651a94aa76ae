"""The health of READY instances: which are watched, and since when one is degraded."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Nullable and without a default: no row is rewritten, and older processes work without it.
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS degraded_since timestamptz")
    op.execute("""
        CREATE TABLE IF NOT EXISTS health_watch (
            instance_id uuid CONSTRAINT health_watch_pkey PRIMARY KEY
                CONSTRAINT health_watch_instance_id_fkey REFERENCES instance (id) ON DELETE CASCADE,
            since timestamptz NOT NULL,
            due_at timestamptz NOT NULL,
            failures bigint NOT NULL DEFAULT 0,
            successes bigint NOT NULL DEFAULT 0
        )
    """)
    op.execute("CREATE INDEX IF NOT EXISTS health_watch_by_due_at ON health_watch (due_at)")
    create_index("instance_ready", "instance (id) WHERE status = 'READY'")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE IF EXISTS health_watch")
    op.execute("ALTER TABLE instance DROP COLUMN IF EXISTS degraded_since")
    drop_index("instance_ready")
