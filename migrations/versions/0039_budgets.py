"""Adds budgets, what was announced of them, and what an open operation may cost."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        ALTER TABLE operation
            ADD COLUMN IF NOT EXISTS reserved_price_e5 bigint,
            ADD COLUMN IF NOT EXISTS reserved_s bigint
    """)
    op.execute("""
        CREATE TABLE IF NOT EXISTS budget (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            name text NOT NULL,
            label_key text,
            label_value text,
            token_id uuid,
            period text NOT NULL,
            timezone text NOT NULL,
            limit_micros bigint NOT NULL,
            thresholds jsonb NOT NULL,
            action text NOT NULL,
            exempt jsonb NOT NULL,
            horizon_s bigint NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT budget_pkey PRIMARY KEY (id),
            CONSTRAINT budget_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT budget_token_id_fkey FOREIGN KEY (token_id) REFERENCES token (id),
            CONSTRAINT budget_period_is_known CHECK (period IN ('DAY', 'WEEK', 'MONTH', 'TOTAL', 'OTHER')),
            CONSTRAINT budget_action_is_known CHECK (action IN ('NOTIFY', 'BLOCK', 'STOP', 'DELETE', 'OTHER')),
            CONSTRAINT budget_limit_is_positive CHECK (limit_micros > 0),
            CONSTRAINT budget_label_has_a_value CHECK ((label_key IS NULL) = (label_value IS NULL)),
            CONSTRAINT budget_has_one_scope CHECK (label_key IS NULL OR token_id IS NULL)
        )
    """)
    op.execute("CREATE UNIQUE INDEX IF NOT EXISTS budget_name_is_unique ON budget (project_id, name)")
    op.execute("""
        CREATE TABLE IF NOT EXISTS budget_mark (
            budget_id uuid NOT NULL,
            period_began_at timestamptz NOT NULL,
            mark text NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT budget_mark_pkey PRIMARY KEY (budget_id, period_began_at, mark),
            CONSTRAINT budget_mark_budget_id_fkey FOREIGN KEY (budget_id) REFERENCES budget (id) ON DELETE CASCADE
        )
    """)
    create_index(
        "operation_with_reserve",
        "operation (project_id) WHERE status IN ('QUEUED', 'RUNNING') AND reserved_price_e5 IS NOT NULL",
    )


def downgrade() -> None:
    drop_index("operation_with_reserve")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE budget_mark")
    op.execute("DROP TABLE budget")
    op.execute("ALTER TABLE operation DROP COLUMN reserved_price_e5, DROP COLUMN reserved_s")
