"""Adds alerts of the market, and the offers that match them."""

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE IF NOT EXISTS market_alert (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            product_names jsonb,
            regions jsonb,
            modes jsonb,
            gpu_count smallint NOT NULL,
            price_at_most_e5 bigint,
            held_for interval NOT NULL,
            cooldown interval NOT NULL,
            expires_at timestamptz,
            webhook_url text,
            fired_at timestamptz,
            created_by uuid,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT market_alert_pkey PRIMARY KEY (id),
            CONSTRAINT market_alert_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT market_alert_created_by_fkey FOREIGN KEY (created_by) REFERENCES token (id) ON DELETE SET NULL
        )
    """)
    op.execute("CREATE INDEX IF NOT EXISTS market_alert_by_project ON market_alert (project_id, created_at, id)")
    op.execute("""
        CREATE TABLE IF NOT EXISTS market_alert_match (
            alert_id uuid NOT NULL,
            region text NOT NULL,
            product_id text NOT NULL,
            mode text NOT NULL,
            gpu_count smallint NOT NULL,
            since timestamptz NOT NULL,
            fired_at timestamptz,
            CONSTRAINT market_alert_match_pkey PRIMARY KEY (alert_id, region, product_id, mode, gpu_count),
            CONSTRAINT market_alert_match_alert_id_fkey FOREIGN KEY (alert_id) REFERENCES market_alert (id)
                ON DELETE CASCADE
        )
    """)
    op.execute(
        "CREATE INDEX IF NOT EXISTS market_alert_match_of_offer"
        " ON market_alert_match (region, mode, gpu_count, product_id)"
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("market_alert_match", "market_alert"):
        op.execute(f"DROP TABLE {table}")
