"""Since when a machine is missing at the provider; a machine of a deleted row may be adopted by another row."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

OLD, NEW = "instance_novita_id_is_unique", "instance_novita_id_is_unique_among_the_living"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance ADD COLUMN IF NOT EXISTS missing_since timestamptz")
    create_index(NEW, "instance (novita_id) WHERE novita_id IS NOT NULL AND status <> 'DELETED'", unique=True)
    drop_index(OLD)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN IF EXISTS missing_since")
    create_index(OLD, "instance (novita_id) WHERE novita_id IS NOT NULL", unique=True)
    drop_index(NEW)
