"""Network volumes, and the instances that hold them."""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE volume (
            id uuid NOT NULL,
            project_id uuid NOT NULL,
            name text NOT NULL,
            region text NOT NULL,
            cluster_id text NOT NULL,
            size_gb bigint NOT NULL,
            status text NOT NULL,
            failure_code text,
            failure_message text,
            novita_id text,
            price_e5 bigint,
            attempt bigint NOT NULL DEFAULT 0,
            marker text,
            asked_at timestamptz,
            delete_accepted_at timestamptz,
            missing_since timestamptz,
            created_by uuid,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now(),
            deleted_at timestamptz,
            CONSTRAINT volume_pkey PRIMARY KEY (id),
            CONSTRAINT volume_project_id_fkey FOREIGN KEY (project_id) REFERENCES project (id),
            CONSTRAINT volume_created_by_fkey FOREIGN KEY (created_by) REFERENCES token (id) ON DELETE SET NULL,
            CONSTRAINT volume_status_is_known
                CHECK (status IN ('CREATING', 'AVAILABLE', 'DELETING', 'DELETED', 'FAILED')),
            CONSTRAINT volume_deleted_has_a_time CHECK ((status = 'DELETED') = (deleted_at IS NOT NULL)),
            CONSTRAINT volume_failed_says_why CHECK (status <> 'FAILED' OR failure_code IS NOT NULL)
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX volume_name_is_unique_among_the_living ON volume (project_id, name)
        WHERE status <> 'DELETED'
    """)
    op.execute("""
        CREATE UNIQUE INDEX volume_novita_id_is_unique_among_the_living ON volume (novita_id)
        WHERE novita_id IS NOT NULL AND status <> 'DELETED'
    """)
    op.execute("CREATE UNIQUE INDEX volume_by_marker ON volume (marker) WHERE marker IS NOT NULL")
    op.execute("CREATE INDEX volume_by_project ON volume (project_id, created_at, id) WHERE status <> 'DELETED'")
    op.execute("""
        CREATE TABLE volume_attachment (
            instance_id uuid NOT NULL,
            volume_id uuid NOT NULL,
            is_exclusive boolean NOT NULL,
            CONSTRAINT volume_attachment_pkey PRIMARY KEY (instance_id, volume_id),
            CONSTRAINT volume_attachment_instance_id_fkey FOREIGN KEY (instance_id) REFERENCES instance (id)
                ON DELETE CASCADE,
            CONSTRAINT volume_attachment_volume_id_fkey FOREIGN KEY (volume_id) REFERENCES volume (id)
        )
    """)
    op.execute("CREATE UNIQUE INDEX volume_attachment_is_exclusive ON volume_attachment (volume_id) WHERE is_exclusive")
    op.execute("CREATE INDEX volume_attachment_of_volume ON volume_attachment (volume_id)")
    # A constant default: no row is rewritten, and processes of the release before insert without the column.
    op.execute("ALTER TABLE instance ADD COLUMN volumes jsonb NOT NULL DEFAULT '[]'::jsonb")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE instance DROP COLUMN volumes")
    op.execute("DROP TABLE volume_attachment")
    op.execute("DROP TABLE volume")
