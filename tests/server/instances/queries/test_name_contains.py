"""Substring search on names uses an index for rare parts and the page's order for common ones."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.instances.queries.instances import InstanceFilter
from tests.support.pages import page_of_instances

PROJECT = UUID(int=1)
FLEET = 20_000
# Few rows match 'eedl', nearly all match 'orke'.
FILL = f"""
    INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,
                          ready_at, created_at)
    SELECT gen_random_uuid(), '{PROJECT}', CASE WHEN n % 5000 = 7 THEN 'Needle-' ELSE 'Worker-' END || n, 'READY', 'p',
           1, 60, 'SPOT', 'nginx', now(), now() - n * interval '1 s'
    FROM generate_series(1, {FLEET}) AS n
"""


@pytest.fixture
async def fleet(database: Database) -> Database:
    async with database.engine.begin() as connection:
        await connection.exec_driver_sql(f"INSERT INTO project (id, name) VALUES ('{PROJECT}', 'parts')")
        await connection.exec_driver_sql(FILL)
    async with database.engine.connect() as connection:
        await connection.exec_driver_sql("ANALYZE instance")
        await connection.commit()
    return database


async def names(session: AsyncSession, part: str, *, starts_with: bool = False) -> list[str]:
    wanted = InstanceFilter(name_starts_with=part) if starts_with else InstanceFilter(name_contains=part)
    return [row.name for row in await page_of_instances(session, project_id=PROJECT, wanted=wanted, first=50)]


async def plan_of(database: Database, part: str, *, starts_with: bool = False) -> str:
    """The generic plan: PostgreSQL may use it from the sixth execution on, if its estimate is cheaper."""
    async with database.read() as session:
        for _ in range(7):
            await names(session, part, starts_with=starts_with)
        statements: list[Any] = []
        connection = await session.connection()

        def note(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
            statements.append((statement, parameters))

        event.listen(connection.sync_connection, "before_cursor_execute", note)
        try:
            await names(session, part, starts_with=starts_with)
        finally:
            event.remove(connection.sync_connection, "before_cursor_execute", note)
        statement, parameters = statements[-1]
        rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        return "\n".join(row[0] for row in rows)


async def test_a_part_that_few_names_have_is_found_by_its_index(fleet: Database):
    assert "instance_living_by_part_of_name" in await plan_of(fleet, "eedl")


async def test_a_beginning_that_few_names_have_is_found_by_an_index_of_names(fleet: Database):
    plan = await plan_of(fleet, "needle-1", starts_with=True)

    assert "instance_living_by_part_of_name" in plan or "instance_living_by_start_of_name" in plan


async def test_a_part_that_most_names_have_is_found_along_the_order_of_the_page(fleet: Database):
    plan = await plan_of(fleet, "orke")

    assert "instance_living_by_project" in plan
    assert "instance_living_by_part_of_name" not in plan


async def test_a_part_is_found_wherever_it_stands_and_only_as_it_is_written(fleet: Database):
    expected = {
        "EEDLE-1": ["Needle-10007", "Needle-15007"],
        "needle-7": ["Needle-7"],
        "r-19999": ["Worker-19999"],
        "19999": ["Worker-19999"],
        "e-r": [],
        "'; --": [],
        "\\'x": [],
        "%eed": [],
        "ne%le": [],
    }

    async with fleet.read() as session:
        assert {part: await names(session, part) for part in expected} == expected
