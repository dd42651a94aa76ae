"""Adds the requested time to run, how a container ended, and an index of instances that failed their health check."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Older processes write rows without these. IF NOT EXISTS, because the index is built outside of the transaction.
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS ready_timeout_seconds bigint")
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS exit_code bigint")
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS exit_message text")
    op.execute("ALTER TABLE operation ADD COLUMN IF NOT EXISTS exit_code bigint")
    create_index("instance_unhealthy", "instance (id) WHERE status = 'FAILED' AND failure_code = 'HEALTH_CHECK_FAILED'")


def downgrade() -> None:
    drop_index("instance_unhealthy")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE operation DROP COLUMN IF EXISTS exit_code")
    for column in ("exit_message", "exit_code", "ready_timeout_seconds"):
        op.execute(f"ALTER TABLE instance DROP COLUMN IF EXISTS {column}")
