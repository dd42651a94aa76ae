"""Adds the ledger of what instances cost, and its sums by day."""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE cost_entry (
            id bigint GENERATED ALWAYS AS IDENTITY,
            project_id uuid NOT NULL,
            instance_id uuid NOT NULL,
            machine text NOT NULL,
            token_id uuid,
            labels jsonb NOT NULL,
            price_e5 bigint,
            product_name text NOT NULL,
            region text,
            run_began_at timestamptz NOT NULL,
            began_at timestamptz NOT NULL,
            ended_at timestamptz,
            amount_micros bigint,
            is_summed boolean NOT NULL DEFAULT false,
            CONSTRAINT cost_entry_pkey PRIMARY KEY (id),
            CONSTRAINT cost_entry_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT cost_entry_instance_id_fkey FOREIGN KEY (instance_id) REFERENCES instance (id)
        )
    """)
    op.execute("""
        CREATE TABLE cost_day (
            id bigint GENERATED ALWAYS AS IDENTITY,
            project_id uuid NOT NULL,
            day date NOT NULL,
            instance_id uuid NOT NULL,
            token_id uuid,
            labels jsonb NOT NULL,
            product_name text NOT NULL,
            region text,
            amount_micros bigint NOT NULL,
            paid_us bigint NOT NULL,
            CONSTRAINT cost_day_pkey PRIMARY KEY (id),
            CONSTRAINT cost_day_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT cost_day_instance_id_fkey FOREIGN KEY (instance_id) REFERENCES instance (id)
        )
    """)
    # New and empty tables: nothing waits for their indexes.
    op.execute(
        "CREATE UNIQUE INDEX cost_entry_one_open_per_instance ON cost_entry (instance_id) WHERE ended_at IS NULL"
    )
    op.execute("CREATE INDEX cost_entry_of_instance ON cost_entry (instance_id, began_at)")
    op.execute("CREATE INDEX cost_entry_by_project ON cost_entry (project_id, began_at)")
    op.execute("CREATE INDEX cost_entry_not_summed ON cost_entry (project_id, began_at) WHERE NOT is_summed")
    op.execute("""
        CREATE UNIQUE INDEX cost_day_is_unique
        ON cost_day (project_id, day, instance_id, token_id, md5(labels::text), product_name, region) NULLS NOT DISTINCT
    """)
    op.execute("CREATE INDEX cost_day_of_instance ON cost_day (instance_id, day)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE cost_day")
    op.execute("DROP TABLE cost_entry")
