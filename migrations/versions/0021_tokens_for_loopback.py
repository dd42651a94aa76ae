"""Marks tokens that are valid only while the server listens on a loopback address."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # With a constant default the table is not rewritten. Older processes write rows without it.
    op.execute("ALTER TABLE token ADD COLUMN is_loopback_only boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE token DROP COLUMN is_loopback_only")
