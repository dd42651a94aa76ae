"""What an UPDATE does, where it is more than a change of ports or disk."""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # No new value of `kind`: processes of the release before could not read the row.
    op.execute("ALTER TABLE operation ADD COLUMN action text")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE operation DROP COLUMN action")
