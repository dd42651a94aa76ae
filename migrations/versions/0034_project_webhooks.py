"""Webhooks of projects, and an index of the events that are not about an instance."""

from alembic import op

from migrations.large import create_index

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE IF NOT EXISTS project_webhook (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            url text NOT NULL,
            types jsonb NOT NULL,
            after bigint NOT NULL,
            created_by uuid,
            created_at timestamptz NOT NULL DEFAULT now(),
            disabled_at timestamptz,
            CONSTRAINT project_webhook_pkey PRIMARY KEY (id),
            CONSTRAINT project_webhook_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT project_webhook_created_by_fkey FOREIGN KEY (created_by) REFERENCES token (id)
                ON DELETE SET NULL
        )
    """)
    op.execute("""
        CREATE INDEX IF NOT EXISTS project_webhook_by_project ON project_webhook (project_id, created_at, id)
    """)
    op.execute("""
        CREATE TABLE IF NOT EXISTS webhook_feed (
            is_the_only_row boolean NOT NULL DEFAULT true,
            position bigint NOT NULL,
            CONSTRAINT webhook_feed_pkey PRIMARY KEY (is_the_only_row),
            CONSTRAINT webhook_feed_has_one_row CHECK (is_the_only_row)
        )
    """)
    op.execute("ALTER TABLE delivery ADD COLUMN IF NOT EXISTS project_webhook_id uuid")
    op.execute("ALTER TABLE delivery ADD COLUMN IF NOT EXISTS subject_id uuid")
    create_index(
        "delivery_waiting_by_webhook",
        "delivery (project_webhook_id, subject_id, seq) WHERE status = 'PENDING' AND project_webhook_id IS NOT NULL",
    )
    create_index(
        "delivery_by_webhook", "delivery (project_webhook_id, created_at, id) WHERE project_webhook_id IS NOT NULL"
    )
    create_index("delivery_by_subject", "delivery (subject_id, created_at, id) WHERE project_webhook_id IS NOT NULL")
    create_index("event_of_project", "event (project_id, position) WHERE instance_id IS NULL")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX event_of_project")
    op.execute("ALTER TABLE delivery DROP COLUMN subject_id")
    op.execute("ALTER TABLE delivery DROP COLUMN project_webhook_id")
    op.execute("DROP TABLE webhook_feed")
    op.execute("DROP TABLE project_webhook")
