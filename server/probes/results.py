"""Reads and writes the results of an instance's last check."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import orjson
from sqlalchemy import delete, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.tables.probe import ProbeResult
from server.db.tables.rows import ProbeRow, make_rows, select_rows

READ = f"{select_rows(ProbeRow)} WHERE instance_id = ANY($1::uuid[]) ORDER BY instance_id, port"
COLUMNS = tuple(column.name for column in ProbeResult.__table__.columns if column.name != "instance_id")

# One statement for any number of rows: an INSERT with a value list is compiled anew for each number.
SAVE = text(f"""
    WITH found AS MATERIALIZED (
        SELECT (jsonb_populate_recordset(CAST(NULL AS probe_result), CAST(:rows AS jsonb))).*
    ), gone AS (
        DELETE FROM probe_result
        WHERE instance_id = ANY(CAST(:ids AS uuid[]))
          AND (instance_id, port) NOT IN (SELECT instance_id, port FROM found)
    )
    INSERT INTO probe_result (instance_id, {", ".join(COLUMNS)})
    SELECT instance_id, {", ".join(COLUMNS)} FROM found ORDER BY instance_id, port
    ON CONFLICT (instance_id, port) DO UPDATE
    SET {", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "port")}
""")


async def read_results(database: Database, instance_ids: Sequence[UUID]) -> dict[UUID, list[ProbeRow]]:
    """Results by instance, ordered by port, for queries."""
    grouped: dict[UUID, list[ProbeRow]] = {instance_id: [] for instance_id in instance_ids}
    for row in make_rows(ProbeRow, await database.raw.fetch_by_keys(READ, instance_ids)):
        grouped[row.instance_id].append(row)
    return grouped


async def results_of(session: AsyncSession, instance_ids: Sequence[UUID]) -> dict[UUID, list[ProbeResult]]:
    """Results by instance, ordered by port, for jobs that change them."""
    rows = await session.execute(
        select(ProbeResult)
        .where(ProbeResult.instance_id.in_(instance_ids))
        .order_by(ProbeResult.instance_id, ProbeResult.port)
    )
    grouped: dict[UUID, list[ProbeResult]] = {instance_id: [] for instance_id in instance_ids}
    for row in rows.scalars():
        grouped[row.instance_id].append(row)
    return grouped


async def save_results(session: AsyncSession, results: Mapping[UUID, Sequence[ProbeResult]]) -> None:
    """Replace the results of these instances; ports that are no longer probed are deleted."""
    rows = [
        {"instance_id": instance_id, **{name: getattr(result, name) for name in COLUMNS}}
        for instance_id in sorted(results)  # in one order, so that two of these never deadlock
        for result in results[instance_id]
    ]
    ids = list(results)
    await session.execute(SAVE, {"ids": ids, "rows": orjson.dumps(rows, default=str).decode()})


async def delete_results(session: AsyncSession, instance_id: UUID) -> None:
    """Delete the results when a new run begins: they are out of date."""
    await session.execute(delete(ProbeResult).where(ProbeResult.instance_id == instance_id))
