"""The key that makes cursors and job ids opaque."""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE TABLE seal_key (
            is_the_only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT seal_key_has_one_row CHECK (is_the_only_row),
            key bytea NOT NULL,
            plain_cursors_until timestamptz
        )
    """)
    # Four random UUIDs are 488 random bits. A log that is in use has given out plain cursors, and processes of the
    # release before still do: they are accepted for a day.
    op.execute("""
        INSERT INTO seal_key (key, plain_cursors_until)
        SELECT decode(replace(string_agg(gen_random_uuid()::text, ''), '-', ''), 'hex'),
               CASE WHEN EXISTS (SELECT FROM event_log) THEN clock_timestamp() + interval '1 day' END
        FROM generate_series(1, 4)
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE seal_key")
