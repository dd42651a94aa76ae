"""Index changes on large tables without blocking their writers.

A plain CREATE INDEX blocks every writer of its table until it is built: seconds for a million instances, minutes for
ten million events. These functions take no lock that blocks a writer.
"""

from alembic import op
from sqlalchemy import text

# Sessions that arrive later queue behind a waiting lock, so it is given up after this long.
LOCK_TIMEOUT = "5s"


def create_index(name: str, on: str, *, unique: bool = False) -> None:
    """Build an index concurrently with writes: `create_index("x_by_y", "x (y) WHERE z")`.

    It can't run in a transaction, so the migration's earlier statements are committed first: write them so that they
    can run twice (IF NOT EXISTS). If it is killed it leaves an invalid index, which the next run removes first.
    """
    table = on.split(maxsplit=1)[0]
    rest = on[len(table) :]
    kind = "UNIQUE INDEX" if unique else "INDEX"
    with op.get_context().autocommit_block():
        op.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        _drop_unfinished(name)
        if _is_partitioned(table):
            op.execute(f"CREATE {kind} IF NOT EXISTS {name} ON ONLY {table}{rest}")
            for partition in _partitions(table):
                part = f"{partition}_{name}"[:63]
                _drop_unfinished(part)
                op.execute(f"CREATE {kind} CONCURRENTLY IF NOT EXISTS {part} ON {partition}{rest}")
                op.execute(f"ALTER INDEX {name} ATTACH PARTITION {part}")
        else:
            op.execute(f"CREATE {kind} CONCURRENTLY IF NOT EXISTS {name} ON {table}{rest}")
        op.execute("RESET lock_timeout")


def drop_index(name: str) -> None:
    """For indexes of tables that are not partitioned."""
    with op.get_context().autocommit_block():
        op.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        op.execute("RESET lock_timeout")


def _drop_unfinished(name: str) -> None:
    found = op.get_bind().execute(
        text("SELECT indrelid FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid"), {"name": name}
    )
    if found.first() is not None:
        op.execute(f"DROP INDEX {name}")


def _is_partitioned(table: str) -> bool:
    found = op.get_bind().execute(text("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(:t)"), {"t": table})
    return bool(found.scalar())


def _partitions(table: str) -> list[str]:
    query = text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(:t) ORDER BY 1")
    return list(op.get_bind().execute(query, {"t": table}).scalars())
