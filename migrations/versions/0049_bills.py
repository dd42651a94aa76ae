"""Adds what the provider has billed, and the days on which the ledger differs from it."""

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE bill_line (
            machine text NOT NULL,
            day date NOT NULL,
            project_id uuid NOT NULL,
            instance_id uuid NOT NULL,
            amount_micros bigint NOT NULL,
            CONSTRAINT bill_line_pkey PRIMARY KEY (machine, day),
            CONSTRAINT bill_line_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT bill_line_instance_id_fkey FOREIGN KEY (instance_id) REFERENCES instance (id)
        )
    """)
    op.execute("CREATE INDEX bill_line_by_project ON bill_line (project_id, day)")
    op.execute("""
        CREATE TABLE bill_difference (
            project_id uuid NOT NULL,
            day date NOT NULL,
            billed_micros bigint NOT NULL,
            ledger_micros bigint NOT NULL,
            created_at timestamptz DEFAULT now() NOT NULL,
            CONSTRAINT bill_difference_pkey PRIMARY KEY (project_id, day),
            CONSTRAINT bill_difference_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id)
        )
    """)
    op.execute("""
        CREATE TABLE bill_check (
            is_the_only_row boolean DEFAULT true NOT NULL,
            since date,
            until date,
            checked_at timestamptz,
            CONSTRAINT bill_check_pkey PRIMARY KEY (is_the_only_row),
            CONSTRAINT bill_check_has_one_row CHECK (is_the_only_row)
        )
    """)
    # Before the upgrade, machines were billed that the ledger does not know.
    op.execute("""
        INSERT INTO bill_check (since)
        SELECT CAST(clock_timestamp() AT TIME ZONE 'UTC' AS date) + 1 WHERE EXISTS (SELECT FROM instance)
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE IF EXISTS bill_check, bill_difference, bill_line")
