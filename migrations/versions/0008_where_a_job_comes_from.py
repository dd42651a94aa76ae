"""The origin of a job: its request and trace context."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Nullable and without a default: no row is rewritten, and older processes work without it.
    op.execute("ALTER TABLE job ADD COLUMN origin text")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE job DROP COLUMN origin")
