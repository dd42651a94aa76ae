"""Who made and who revoked a token; what lists of a large fleet are filtered and sorted by."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE token
            ADD COLUMN created_by uuid CONSTRAINT token_created_by_fkey REFERENCES token ON DELETE SET NULL,
            ADD COLUMN revoked_by uuid CONSTRAINT token_revoked_by_fkey REFERENCES token ON DELETE SET NULL
    """)
    op.execute("""
        CREATE INDEX instance_living_by_status_since ON instance (project_id, status_since, id)
        WHERE status <> 'DELETED'
    """)
    op.execute("""
        CREATE INDEX instance_living_by_price ON instance (project_id, coalesce(price_per_hour_e5, 0), id)
        WHERE status <> 'DELETED'
    """)
    op.execute("""
        CREATE INDEX instance_living_by_start_of_name ON instance (project_id, lower(name) text_pattern_ops)
        WHERE status <> 'DELETED'
    """)
    # The same rows as before, and now also by key alone.
    op.execute("CREATE INDEX instance_by_label_or_key ON instance USING gin (labels) WHERE labels <> '{}'::jsonb")
    op.execute("DROP INDEX instance_by_label")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE INDEX instance_by_label ON instance USING gin (labels jsonb_path_ops) WHERE labels <> '{}'::jsonb
    """)
    for index in (
        "instance_by_label_or_key",
        "instance_living_by_start_of_name",
        "instance_living_by_price",
        "instance_living_by_status_since",
    ):
        op.execute(f"DROP INDEX {index}")
    op.execute("ALTER TABLE token DROP COLUMN created_by, DROP COLUMN revoked_by")
