"""Allows instances without a GPU, and stores the private network of an instance."""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance ADD COLUMN network_id text")
    # Wider than before, so every row fulfils it: NOT VALID only saves the scan.
    op.execute("ALTER TABLE instance DROP CONSTRAINT instance_gpu_count_is_possible")
    op.execute(
        "ALTER TABLE instance ADD CONSTRAINT instance_gpu_count_is_possible CHECK (gpu_count BETWEEN 0 AND 8) NOT VALID"
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP CONSTRAINT instance_gpu_count_is_possible")
    op.execute(
        "ALTER TABLE instance ADD CONSTRAINT instance_gpu_count_is_possible CHECK (gpu_count BETWEEN 1 AND 8) NOT VALID"
    )
    op.execute("ALTER TABLE instance DROP COLUMN network_id")
