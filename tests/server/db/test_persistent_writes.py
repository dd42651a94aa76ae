"""What only a process knows, and can't write, is in its log."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from server.db.persistent_writes import PersistentWrites
from tests.server.spend.test_removals import behind_a_proxy
from tests.support.waiting import until


async def test_fact_that_is_lost_after_its_caller_has_gone_is_in_the_log(database_url: str):
    async with behind_a_proxy(database_url) as (database, proxy):
        proxy.cut()
        writes = PersistentWrites(database, within=timedelta(milliseconds=300))
        with capture_logs() as logs:
            caller = asyncio.create_task(
                writes.write(
                    lambda session: session.execute(text("SELECT 1")),
                    first=database.write,
                    words={"call": "delete", "machine": "m-1"},
                )
            )
            await asyncio.sleep(0)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller

            async def is_lost() -> bool:
                return any(each["event"] == "database.fact_lost" for each in logs)

            await until(is_lost)
    (lost,) = [each for each in logs if each["event"] == "database.fact_lost"]
    assert (lost["log_level"], lost["call"], lost["machine"]) == ("error", "delete", "m-1")


async def test_fact_that_is_lost_with_its_process_is_in_the_log(database_url: str):
    async with behind_a_proxy(database_url) as (database, proxy):
        proxy.cut()
        before = asyncio.all_tasks()
        with capture_logs() as logs:
            write = PersistentWrites(database).write
            fact = write(
                lambda session: session.execute(text("SELECT 1")), first=database.write, words={"machine": "m-1"}
            )
            caller = asyncio.create_task(fact)
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - before
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
    assert [(each["event"], each["machine"]) for each in logs] == [("database.fact_lost", "m-1")]
    assert caller.cancelled()
