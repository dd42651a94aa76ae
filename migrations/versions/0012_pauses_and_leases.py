"""How long a job was to wait, and how long a lease is: a clock that jumps makes neither longer."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Nullable: no row is rewritten. A row of before, or of an older process, has none and is left alone. The default is
    # for jobs that are due when they are added.
    op.execute("ALTER TABLE job ADD COLUMN pause interval")
    op.execute("ALTER TABLE job ALTER COLUMN pause SET DEFAULT '00:00:00'")
    op.execute("ALTER TABLE job_worker ADD COLUMN lease interval")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE job DROP COLUMN pause")
    op.execute("ALTER TABLE job_worker DROP COLUMN lease")
