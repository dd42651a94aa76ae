"""Keeps how many machines without a row the last reconcile found, by origin, for metrics of every process."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE unlinked_count (
            origin text NOT NULL,
            machines bigint NOT NULL,
            counted_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT unlinked_count_pkey PRIMARY KEY (origin)
        )
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE unlinked_count")
