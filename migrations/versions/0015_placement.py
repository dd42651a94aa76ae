"""The order in which an instance's regions are tried."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Nullable: rows of older processes have none and are placed region by region, as those processes do it.
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS placement text")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN IF EXISTS placement")
