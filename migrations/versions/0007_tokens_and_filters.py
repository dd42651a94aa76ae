"""Creator and revoker of a token; indexes to filter and sort large fleets."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE token
            ADD COLUMN IF NOT EXISTS created_by uuid REFERENCES token ON DELETE SET NULL,
            ADD COLUMN IF NOT EXISTS revoked_by uuid REFERENCES token ON DELETE SET NULL
    """)
    living = "WHERE status <> 'DELETED'"
    create_index("instance_living_by_status_since", f"instance (project_id, status_since, id) {living}")
    create_index("instance_living_by_price", f"instance (project_id, coalesce(price_per_hour_e5, 0), id) {living}")
    create_index("instance_living_by_start_of_name", f"instance (project_id, lower(name) text_pattern_ops) {living}")
    # By status, without scanning deleted rows, which sort first.
    create_index("instance_living_by_status", f"instance (project_id, status, id) {living}")
    drop_index("instance_by_status")
    # The same rows as before, now also searchable by key alone.
    create_index("instance_by_label_or_key", "instance USING gin (labels) WHERE labels <> '{}'::jsonb")
    drop_index("instance_by_label")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE token DROP COLUMN IF EXISTS created_by, DROP COLUMN IF EXISTS revoked_by")
    create_index("instance_by_label", "instance USING gin (labels jsonb_path_ops) WHERE labels <> '{}'::jsonb")
    create_index("instance_by_status", "instance (project_id, status, id)")
    for index in (
        "instance_by_label_or_key",
        "instance_living_by_status",
        "instance_living_by_start_of_name",
        "instance_living_by_price",
        "instance_living_by_status_since",
    ):
        drop_index(index)
