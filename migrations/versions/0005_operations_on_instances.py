"""Operations on existing instances: phases, columns for the worker, history for estimates, filters."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OLD_PHASES = "'WAITING', 'PLACING', 'PROVISIONING', 'CHECKING_HEALTH', 'STOPPING', 'DELETING', 'OVER'"
NEW_PHASES = (
    "'WAITING', 'PLACING', 'STARTING', 'RESTARTING', 'MIGRATING', 'PROVISIONING', 'CHECKING_HEALTH',"
    " 'STOPPING', 'UPDATING', 'DELETING', 'OVER'"
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE operation
            ADD COLUMN asked_at timestamptz,
            ADD COLUMN before jsonb NOT NULL DEFAULT '{}'::jsonb,
            ADD COLUMN wanted jsonb NOT NULL DEFAULT '{}'::jsonb,
            ADD COLUMN product_name text,
            ADD COLUMN region text,
            DROP CONSTRAINT operation_phase_is_known
    """)
    op.execute(f"ALTER TABLE operation ADD CONSTRAINT operation_phase_is_known CHECK (phase IN ({NEW_PHASES}))")
    op.execute("ALTER TABLE idempotency_key ALTER COLUMN operation_id DROP NOT NULL")
    op.execute("CREATE INDEX operation_of_instance ON operation (instance_id, created_at, id)")
    op.execute("DROP INDEX operation_by_instance")
    op.execute("""
        CREATE INDEX operation_that_succeeded ON operation (project_id, kind, product_name, region, finished_at)
        WHERE status = 'SUCCEEDED'
    """)
    op.execute("""
        CREATE INDEX instance_living_by_project ON instance (project_id, created_at, id) WHERE status <> 'DELETED'
    """)
    op.execute("CREATE INDEX instance_by_status ON instance (project_id, status, id)")
    op.execute("""
        CREATE INDEX instance_by_label ON instance USING gin (labels jsonb_path_ops) WHERE labels <> '{}'::jsonb
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for index in ("instance_by_label", "instance_by_status", "instance_living_by_project", "operation_that_succeeded"):
        op.execute(f"DROP INDEX {index}")
    op.execute("CREATE INDEX operation_by_instance ON operation (instance_id, created_at)")
    op.execute("DROP INDEX operation_of_instance")
    op.execute("DELETE FROM idempotency_key WHERE operation_id IS NULL")
    op.execute("ALTER TABLE idempotency_key ALTER COLUMN operation_id SET NOT NULL")
    op.execute(f"UPDATE operation SET phase = 'PROVISIONING' WHERE phase NOT IN ({OLD_PHASES})")
    op.execute("""
        ALTER TABLE operation
            DROP COLUMN asked_at,
            DROP COLUMN before,
            DROP COLUMN wanted,
            DROP COLUMN product_name,
            DROP COLUMN region,
            DROP CONSTRAINT operation_phase_is_known
    """)
    op.execute(f"ALTER TABLE operation ADD CONSTRAINT operation_phase_is_known CHECK (phase IN ({OLD_PHASES}))")
