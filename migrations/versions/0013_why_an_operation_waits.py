"""Adds the provider's last error to operations that wait for it."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE operation ADD COLUMN last_error_code text, ADD COLUMN last_error_message text")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE operation DROP COLUMN last_error_code, DROP COLUMN last_error_message")
