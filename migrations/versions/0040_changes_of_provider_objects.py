"""Adds what the provider last showed of an object of the account, and since when it is missing there."""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE provider_object
            ADD COLUMN IF NOT EXISTS missing_since timestamptz,
            ADD COLUMN IF NOT EXISTS seen text
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE provider_object DROP COLUMN missing_since, DROP COLUMN seen")
