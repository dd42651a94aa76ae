"""Adds quotas, and limits of tokens."""

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE token ADD COLUMN IF NOT EXISTS limits jsonb")
    op.execute("""
        CREATE TABLE IF NOT EXISTS quota (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            label_key text,
            label_value text,
            token_id uuid,
            max_instances bigint,
            max_gpus bigint,
            max_price_e5 bigint,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT quota_pkey PRIMARY KEY (id),
            CONSTRAINT quota_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT quota_token_id_fkey FOREIGN KEY (token_id) REFERENCES token (id),
            CONSTRAINT quota_label_has_a_value CHECK ((label_key IS NULL) = (label_value IS NULL)),
            CONSTRAINT quota_has_one_scope CHECK (label_key IS NULL OR token_id IS NULL),
            CONSTRAINT quota_has_a_maximum CHECK (num_nonnulls(max_instances, max_gpus, max_price_e5) > 0)
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX IF NOT EXISTS quota_one_per_scope
        ON quota (project_id, label_key, label_value, token_id) NULLS NOT DISTINCT
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE quota")
    op.execute("ALTER TABLE token DROP COLUMN limits")
