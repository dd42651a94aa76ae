"""Indexes for the retention of idempotency keys and of operations of deleted instances."""

from migrations.large import create_index, drop_index

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("idempotency_key_by_operation", "idempotency_key (operation_id)")
    create_index("idempotency_key_by_age", "idempotency_key (created_at)")


def downgrade() -> None:
    drop_index("idempotency_key_by_age")
    drop_index("idempotency_key_by_operation")
