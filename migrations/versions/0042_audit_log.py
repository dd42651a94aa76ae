"""Adds the audit log."""

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE IF NOT EXISTS audit_event (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            token_id uuid NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            request_id text NOT NULL,
            mutation text NOT NULL,
            input_digest bytea NOT NULL,
            target text,
            outcome text NOT NULL,
            error_code text,
            CONSTRAINT audit_event_pkey PRIMARY KEY (id),
            CONSTRAINT audit_event_outcome_is_known
                CHECK (outcome IN ('ACCEPTED', 'VALIDATED', 'REFUSED', 'FAILED', 'OTHER'))
        )
    """)
    op.execute("CREATE INDEX IF NOT EXISTS audit_event_by_project ON audit_event (project_id, created_at, id)")
    op.execute("CREATE INDEX IF NOT EXISTS audit_event_by_time ON audit_event (created_at, id)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE audit_event")
