"""Names the secret variables of an instance, and finds deleted instances that still have variables."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Null in rows of older processes: which are secret then follows from the names.
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS secret_env jsonb")
    create_index("instance_deleted_with_env", "instance (id) WHERE status = 'DELETED' AND env <> '{}'::jsonb")


def downgrade() -> None:
    drop_index("instance_deleted_with_env")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN IF EXISTS secret_env")
