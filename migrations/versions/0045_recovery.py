"""Adds how instances come back by themselves, and what is going on."""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance ADD COLUMN recovery jsonb, ADD COLUMN recovery_state jsonb")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN recovery_state, DROP COLUMN recovery")
