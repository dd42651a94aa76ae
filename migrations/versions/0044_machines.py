"""Adds the machines that an instance has had, and the jobs that replace and remove them to the lines."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

ENDS = "'STOP_INSTANCE', 'DELETE_INSTANCE'"
STARTS = "'START_INSTANCE', 'RESTART_INSTANCE', 'MIGRATE_INSTANCE', 'UPDATE_INSTANCE', 'SAVE_IMAGE', 'UPGRADE_INSTANCE'"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # All of it may run twice: building the index of jobs commits what is before it.
    op.execute("""
        CREATE TABLE IF NOT EXISTS machine (
            instance_id uuid NOT NULL,
            number bigint NOT NULL,
            novita_id text NOT NULL,
            region text,
            product_id text,
            billing_mode text,
            price_e5 bigint,
            began_at timestamptz NOT NULL,
            serving_from timestamptz,
            removing_from timestamptz,
            removal_accepted_at timestamptz,
            missing_since timestamptz,
            ended_at timestamptz,
            end_reason text,
            CONSTRAINT machine_pkey PRIMARY KEY (instance_id, number),
            CONSTRAINT machine_instance_id_fkey FOREIGN KEY (instance_id) REFERENCES instance (id) ON DELETE CASCADE,
            CONSTRAINT machine_ended_says_why CHECK ((ended_at IS NULL) = (end_reason IS NULL))
        )
    """)
    op.execute("CREATE UNIQUE INDEX IF NOT EXISTS machine_of_instance ON machine (instance_id, novita_id)")
    op.execute("""
        CREATE UNIQUE INDEX IF NOT EXISTS machine_one_serving_per_instance ON machine (instance_id)
        WHERE serving_from IS NOT NULL AND removing_from IS NULL AND ended_at IS NULL
    """)
    op.execute("CREATE INDEX IF NOT EXISTS machine_by_novita_id ON machine (novita_id) WHERE ended_at IS NULL")
    op.execute("""
        CREATE INDEX IF NOT EXISTS machine_to_remove ON machine (instance_id)
        WHERE removing_from IS NOT NULL AND ended_at IS NULL
    """)
    # What an older process links after this gets its row from reconcile.
    op.execute("""
        INSERT INTO machine (instance_id, number, novita_id, region, product_id, billing_mode, price_e5, began_at,
                             serving_from, ended_at, end_reason)
        SELECT id, 1, novita_id, region, product_id, billing_mode, price_per_hour_e5,
               least(created_at, running_at), least(created_at, running_at),
               CASE WHEN novita_status = 'removed' THEN coalesce(missing_since, status_since) END,
               CASE WHEN novita_status = 'removed' THEN 'GONE_AT_PROVIDER' END
        FROM instance WHERE novita_id IS NOT NULL AND status <> 'DELETED'
        ON CONFLICT DO NOTHING
    """)
    _replace_line("job_line_ends", f"{ENDS}, 'REMOVE_MACHINE'")
    _replace_line("job_line_starts", f"{STARTS}, 'START_BY_STEPS'")


def downgrade() -> None:
    _replace_line("job_line_starts", STARTS)
    _replace_line("job_line_ends", ENDS)
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE IF EXISTS machine")


def _replace_line(name: str, kinds: str) -> None:
    """As in 0035: there is an index at every moment; killed at any step, the next run goes on."""
    create_index(f"{name}_next", f"job (project_id, due_at, id) WHERE kind IN ({kinds})")
    drop_index(name)
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(f"ALTER INDEX {name}_next RENAME TO {name}")
