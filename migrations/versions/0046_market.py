"""Adds the market: regions, offers, their changes, and when each segment was polled."""

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE IF NOT EXISTS market_region (
            region text NOT NULL,
            cluster_id text NOT NULL,
            list_order smallint NOT NULL,
            cluster jsonb NOT NULL,
            polled_at timestamptz NOT NULL,
            seen_at timestamptz NOT NULL,
            CONSTRAINT market_region_pkey PRIMARY KEY (region)
        )
    """)
    op.execute("""
        CREATE TABLE IF NOT EXISTS market_segment (
            region text NOT NULL,
            mode text NOT NULL,
            gpu_count smallint NOT NULL,
            polled_at timestamptz,
            seen_at timestamptz,
            used_at timestamptz,
            watched_until timestamptz,
            CONSTRAINT market_segment_pkey PRIMARY KEY (region, mode, gpu_count)
        )
    """)
    op.execute("""
        CREATE TABLE IF NOT EXISTS market_call (
            id bigint GENERATED ALWAYS AS IDENTITY,
            at timestamptz NOT NULL,
            CONSTRAINT market_call_pkey PRIMARY KEY (id)
        )
    """)
    op.execute("""
        CREATE TABLE IF NOT EXISTS offer (
            region text NOT NULL,
            product_id text NOT NULL,
            mode text NOT NULL,
            gpu_count smallint NOT NULL,
            product_name text NOT NULL,
            price_e5 bigint,
            is_available boolean NOT NULL,
            inventory text,
            is_listed boolean NOT NULL DEFAULT true,
            product jsonb NOT NULL,
            seen_at timestamptz NOT NULL,
            changed_at timestamptz NOT NULL,
            CONSTRAINT offer_pkey PRIMARY KEY (region, product_id, mode, gpu_count)
        )
    """)
    op.execute("CREATE INDEX IF NOT EXISTS offer_by_name ON offer (product_name, gpu_count)")
    op.execute("""
        CREATE TABLE IF NOT EXISTS offer_change (
            id bigint GENERATED ALWAYS AS IDENTITY,
            region text NOT NULL,
            product_id text NOT NULL,
            product_name text NOT NULL,
            mode text NOT NULL,
            gpu_count smallint NOT NULL,
            price_e5 bigint,
            is_available boolean NOT NULL,
            inventory text,
            at timestamptz NOT NULL,
            CONSTRAINT offer_change_pkey PRIMARY KEY (id)
        )
    """)
    op.execute(
        "CREATE INDEX IF NOT EXISTS offer_change_of_offer ON offer_change (product_name, region, mode, gpu_count, at)"
    )
    op.execute("CREATE INDEX IF NOT EXISTS offer_change_by_time ON offer_change (at)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("offer_change", "offer", "market_call", "market_segment", "market_region"):
        op.execute(f"DROP TABLE {table}")
