"""Adds the token that an instance belongs to, if that token sees only its own instances."""

from alembic import op

from migrations.large import create_index

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS owner_token_id uuid")
    create_index("instance_by_owner", "instance (owner_token_id, created_at, id) WHERE owner_token_id IS NOT NULL")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN owner_token_id")
