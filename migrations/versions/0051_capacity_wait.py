"""Adds operations that wait for capacity, and the turns of projects."""

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE capacity_wait (
            operation_id uuid NOT NULL,
            project_id uuid NOT NULL,
            instance_id uuid NOT NULL,
            kind text NOT NULL,
            args jsonb NOT NULL,
            product_name text NOT NULL,
            product_id text,
            gpu_count smallint NOT NULL,
            rootfs_size_gb bigint,
            regions text[] NOT NULL,
            modes text[] NOT NULL,
            max_price_e5 bigint,
            priority smallint NOT NULL,
            since timestamptz NOT NULL,
            until timestamptz NOT NULL,
            tries bigint DEFAULT 0 NOT NULL,
            unfit jsonb DEFAULT '[]' NOT NULL,
            blocked_by text,
            blocked_until timestamptz,
            refused_at timestamptz,
            job_id bigint,
            offer_region text,
            offer_product_id text,
            offer_mode text,
            woken_at timestamptz,
            CONSTRAINT capacity_wait_pkey PRIMARY KEY (operation_id),
            CONSTRAINT capacity_wait_operation_id_fkey FOREIGN KEY (operation_id)
                REFERENCES operation (id) ON DELETE CASCADE
        )
    """)
    op.execute("CREATE INDEX capacity_wait_for_product ON capacity_wait (product_name, gpu_count)")
    op.execute("CREATE INDEX capacity_wait_of_project ON capacity_wait (project_id)")
    op.execute("""
        CREATE TABLE capacity_turn (
            project_id uuid NOT NULL,
            served bigint NOT NULL,
            CONSTRAINT capacity_turn_pkey PRIMARY KEY (project_id),
            CONSTRAINT capacity_turn_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id) ON DELETE CASCADE
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE capacity_turn")
    op.execute("DROP TABLE capacity_wait")
