"""Stores which instances a bulk request with a filter and a key is about."""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE idempotency_key ADD COLUMN instance_ids jsonb")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE idempotency_key DROP COLUMN instance_ids")
