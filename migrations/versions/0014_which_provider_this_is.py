"""Records which provider account, or which simulated world, the database belongs to."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE provider_identity (
            is_the_only_row boolean NOT NULL DEFAULT true,
            kind text NOT NULL,
            base_url text NOT NULL,
            world_id text,
            salt text NOT NULL,
            key_hashes jsonb NOT NULL,
            bound_at timestamptz NOT NULL DEFAULT now(),
            answers jsonb,
            answered_at timestamptz,
            CONSTRAINT provider_identity_pkey PRIMARY KEY (is_the_only_row),
            CONSTRAINT provider_identity_has_one_row CHECK (is_the_only_row),
            CONSTRAINT provider_identity_kind_is_known CHECK (kind IN ('NOVITA', 'SIMULATOR')),
            CONSTRAINT provider_identity_simulator_has_a_world CHECK ((kind = 'SIMULATOR') = (world_id IS NOT NULL))
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE provider_identity")
