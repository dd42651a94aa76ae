"""Search for parts of instance names, by trigrams and without an extension that servers may lack."""

from alembic import op

from migrations.large import create_index, drop_index

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # All lower-case trigrams. A plpgsql loop takes half the time of one query.
    op.execute("""
        CREATE OR REPLACE FUNCTION parts_of_name(name text) RETURNS text[]
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
        DECLARE
            small text := lower(name);
            parts text[] := '{}';
        BEGIN
            FOR n IN 1 .. length(small) - 2 LOOP
                parts := parts || substr(small, n, 3);
            END LOOP;
            RETURN parts;
        END $$
    """)
    # The planner ignores statistics of partial indexes but uses these: frequent parts of names are then found by
    # scanning in page order, rare ones by the index.
    op.execute("CREATE STATISTICS IF NOT EXISTS instance_parts_of_name ON (parts_of_name(name)) FROM instance")
    living = "WHERE status <> 'DELETED'"
    create_index("instance_living_by_part_of_name", f"instance USING gin (parts_of_name(name)) {living}")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    drop_index("instance_living_by_part_of_name")
    op.execute("DROP STATISTICS IF EXISTS instance_parts_of_name")
    op.execute("DROP FUNCTION parts_of_name")
