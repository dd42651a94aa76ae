"""Stores which project created an object of the provider account."""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE provider_object (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            kind text NOT NULL,
            name text NOT NULL,
            novita_id text,
            known_before jsonb NOT NULL DEFAULT '[]'::jsonb,
            created_by uuid,
            created_at timestamptz NOT NULL DEFAULT now(),
            asked_at timestamptz NOT NULL DEFAULT now(),
            deleted_at timestamptz,
            CONSTRAINT provider_object_pkey PRIMARY KEY (id),
            CONSTRAINT provider_object_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT provider_object_created_by_fkey FOREIGN KEY (created_by) REFERENCES token (id)
                ON DELETE SET NULL,
            CONSTRAINT provider_object_kind_is_known
                CHECK (kind IN ('REGISTRY_AUTH', 'TEMPLATE', 'NETWORK', 'PREWARM'))
        )
    """)
    op.execute("CREATE UNIQUE INDEX provider_object_novita_id_is_unique ON provider_object (kind, novita_id)")
    op.execute("""
        CREATE UNIQUE INDEX provider_object_one_unconfirmed_per_name ON provider_object (kind, name)
        WHERE novita_id IS NULL AND deleted_at IS NULL
    """)
    op.execute("CREATE INDEX provider_object_by_project ON provider_object (project_id, kind)")
    op.execute("CREATE INDEX provider_object_deleted ON provider_object (deleted_at) WHERE deleted_at IS NOT NULL")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE provider_object")
