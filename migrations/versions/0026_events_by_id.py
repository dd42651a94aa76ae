"""Indexes events by their id, so that `node(id)` finds one."""

from alembic import op

from migrations.large import create_index

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Ids are UUIDv7, so new entries go to the right end of the index.
    create_index("event_by_id", "event (id)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX event_by_id")
