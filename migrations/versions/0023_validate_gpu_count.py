"""Validates the wider check of the number of GPUs, without a lock that blocks writers."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance VALIDATE CONSTRAINT instance_gpu_count_is_possible")


def downgrade() -> None:
    pass
