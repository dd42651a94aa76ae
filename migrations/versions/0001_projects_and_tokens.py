"""Projects and tokens."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE project (
            id uuid CONSTRAINT project_pkey PRIMARY KEY,
            name text NOT NULL CONSTRAINT project_name_key UNIQUE,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT project_has_a_name CHECK (name <> '')
        )
    """)
    op.execute("""
        CREATE TABLE token (
            id uuid CONSTRAINT token_pkey PRIMARY KEY,
            project_id uuid NOT NULL CONSTRAINT token_project_id_fkey REFERENCES project (id) ON DELETE CASCADE,
            name text NOT NULL,
            role text NOT NULL,
            hash bytea NOT NULL CONSTRAINT token_hash_key UNIQUE,
            hint text NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            expires_at timestamptz,
            revoked_at timestamptz,
            last_used_at timestamptz,
            CONSTRAINT token_role_is_known CHECK (role IN ('READER', 'OPERATOR', 'ADMIN'))
        )
    """)
    op.execute("CREATE INDEX token_by_project ON token (project_id, created_at)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE token")
    op.execute("DROP TABLE project")
