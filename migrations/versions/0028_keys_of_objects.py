"""Lets an idempotency key stand for a created object that is not an operation."""

from alembic import op

from migrations.large import create_index

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Older processes refuse such a key as used for another request, which is safe.
    op.execute("ALTER TABLE idempotency_key ADD COLUMN IF NOT EXISTS object_id uuid")
    create_index("idempotency_key_by_object", "idempotency_key (object_id) WHERE object_id IS NOT NULL")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE idempotency_key DROP COLUMN object_id")
