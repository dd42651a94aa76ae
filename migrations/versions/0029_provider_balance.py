"""Stores the balance of the provider account, and since when it is low."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE provider_balance (
            is_the_only_row boolean NOT NULL DEFAULT true,
            available_e4 bigint NOT NULL,
            observed_at timestamptz NOT NULL DEFAULT now(),
            low_since timestamptz,
            CONSTRAINT provider_balance_pkey PRIMARY KEY (is_the_only_row),
            CONSTRAINT provider_balance_has_one_row CHECK (is_the_only_row)
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE provider_balance")
