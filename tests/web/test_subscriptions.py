"""What the page's subscriptions do after a result that has errors."""

from pathlib import Path

import asyncpg

from tests.support.databases import DatabaseMaker
from tests.support.processes import up
from tests.support.waiting import until
from tests.web.browser import Browser, Servant
from tests.web.requests import page_at

TOKEN = "SELECT project_id, id FROM token"
ANNOUNCE = """
    INSERT INTO outbox (id, type, project_id, caused_by, data)
    VALUES (gen_random_uuid(), $1, $2, $3, '{"values": {"balanceMicros": 50000000}}')
"""
SHOWN = ".tab-panel tbody code"


async def test_a_subscription_whose_result_had_an_error_ends_before_its_successor_begins(
    servant: Servant, new_database: DatabaseMaker, tmp_path: Path
):
    """An event names its token, which can't be read for a moment: the result has UNAVAILABLE; the server goes on."""
    settings = {"DATABASE_URL": await new_database.migrated(), "DATABASE_LOCK_TIMEOUT": "0.3"}
    async with up(tmp_path, env=settings) as running:
        page = await servant.open("busy-database", page_at(running, "#/events"))
        await page.wait(".empty")
        await until(lambda: _follows(page))
        one, other = [await asyncpg.connect(running.ready["databaseUrl"]) for _ in range(2)]
        token = tuple(await one.fetchrow(TOKEN))

        async with one.transaction():
            await one.execute("LOCK TABLE token IN ACCESS EXCLUSIVE MODE")
            await other.execute(ANNOUNCE, "balance.low", *token)
            await until(lambda: _has_failed(page))
        await page.wait(f"{SHOWN}:text-is('balance.low')")

        assert (await page.subscriptions())["open"].count("FollowProjectEvents") == 1
        for type in ("balance.high", "budget.reset"):
            await other.execute(ANNOUNCE, type, *token)
            await page.wait(f"{SHOWN}:text-is('{type}')")
        assert await page.texts(SHOWN) == ["budget.reset", "balance.high", "balance.low"]  # each once
        await one.close()
        await other.close()


async def _follows(page: Browser) -> bool:
    return "FollowProjectEvents" in (await page.subscriptions())["open"]


async def _has_failed(page: Browser) -> bool:
    return (await page.subscriptions())["failed"] > 0
