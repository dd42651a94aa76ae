"""What a create takes over from its template: tools, and the lowest CUDA version."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # A constant default rewrites no row, and older processes insert without the columns.
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS tools jsonb NOT NULL DEFAULT '[]'")
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS min_cuda_version text")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN IF EXISTS tools, DROP COLUMN IF EXISTS min_cuda_version")
