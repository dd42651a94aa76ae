"""Adds the jobs that save images and upgrade machines to the line of starts: both call the provider for a user."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

BEFORE = "'START_INSTANCE', 'RESTART_INSTANCE', 'MIGRATE_INSTANCE', 'UPDATE_INSTANCE'"
SINCE = f"{BEFORE}, 'SAVE_IMAGE', 'UPGRADE_INSTANCE'"


def upgrade() -> None:
    _replace(SINCE)


def downgrade() -> None:
    _replace(BEFORE)


def _replace(kinds: str) -> None:
    """Processes of the release before ask for fewer kinds, and use the larger index as well. There is an index at every
    moment; killed at any step, the next run goes on."""
    create_index("job_line_starts_next", f"job (project_id, due_at, id) WHERE kind IN ({kinds})")
    drop_index("job_line_starts")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER INDEX job_line_starts_next RENAME TO job_line_starts")
