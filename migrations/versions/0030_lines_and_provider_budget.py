"""The budget of provider calls that all processes share, and the lines in which projects take turns."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

LINES = {
    "job_line_ends": "'STOP_INSTANCE', 'DELETE_INSTANCE'",
    "job_line_starts": "'START_INSTANCE', 'RESTART_INSTANCE', 'MIGRATE_INSTANCE', 'UPDATE_INSTANCE'",
    "job_line_creates": "'CREATE_INSTANCE'",
}


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE IF NOT EXISTS provider_budget (
            is_the_only_row boolean DEFAULT true NOT NULL,
            version bigint NOT NULL,
            rate double precision NOT NULL,
            tokens double precision NOT NULL,
            at double precision NOT NULL,
            lowered_at double precision NOT NULL,
            own double precision[] NOT NULL,
            used double precision[] NOT NULL,
            CONSTRAINT provider_budget_pkey PRIMARY KEY (is_the_only_row),
            CONSTRAINT provider_budget_has_one_row CHECK (is_the_only_row)
        ) WITH (fillfactor = 50)
    """)
    for name, kinds in LINES.items():
        create_index(name, f"job (project_id, due_at, id) WHERE kind IN ({kinds})")


def downgrade() -> None:
    for name in LINES:
        drop_index(name)
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE IF EXISTS provider_budget")
