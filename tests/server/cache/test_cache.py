"""Caches are bounded, load once per key, and keep nothing that was invalidated during a load."""

import asyncio
from datetime import timedelta

import pytest

from server.cache.cache import Cache
from server.cache.registry import Caches
from tests.support.waiting import until

MINUTE = timedelta(minutes=1)


class CountingSource:
    """Counts how often it was asked, and can be held back."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self) -> int:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        return number


async def test_a_hundred_simultaneous_misses_make_one_load():
    cache: Cache[int] = Cache(ttl=MINUTE, max_size=10)
    source = CountingSource()
    source.gate.clear()

    waiting = asyncio.gather(*(cache.get("key", source.load) for _ in range(100)))
    await until(lambda: source.asked == 1)
    source.gate.set()

    assert set(await waiting) == {1}
    assert source.asked == 1


async def test_a_cancelled_caller_does_not_cancel_the_load_of_the_others():
    cache: Cache[int] = Cache(ttl=MINUTE, max_size=10)
    source = CountingSource()
    source.gate.clear()
    first = asyncio.create_task(cache.get("key", source.load))
    second = asyncio.create_task(cache.get("key", source.load))
    await until(lambda: source.asked == 1)

    first.cancel()
    source.gate.set()

    assert await second == 1


async def test_the_least_recently_used_goes_first():
    cache: Cache[str] = Cache(ttl=MINUTE, max_size=2)
    for key in ("a", "b", "a", "c"):
        await cache.get(key, lambda key=key: _value(key))

    stats = await cache.stats()

    assert (stats.keys, stats.size, stats.evictions) == (("a", "c"), 2, 1)
    assert (stats.hits, stats.misses, stats.ratio) == (1, 3, 0.25)


async def test_a_value_is_cached_for_its_ttl_and_no_longer():
    cache: Cache[int] = Cache(ttl=timedelta(milliseconds=30), max_size=10)
    source = CountingSource()
    assert await cache.get("key", source.load) == 1
    assert await cache.get("key", source.load) == 1

    async def is_over() -> bool:
        return await cache.peek("key") is None

    await until(is_over)
    assert await cache.get("key", source.load) == 2


async def test_expired_values_are_cleared_and_counted_and_live_ones_stay():
    caches = Caches()
    short = caches.new("short", str, ttl=timedelta(milliseconds=1), max_size=10)
    long = caches.new("long", str, ttl=MINUTE, max_size=10)
    for cache in (short, long):
        await cache.put("key", "value")

    async def is_over() -> bool:
        return await short.peek("key") is None

    await until(is_over)

    assert await caches.clear_expired() == 1
    assert await caches.clear_expired() == 0
    assert await long.peek("key") == "value"


async def test_a_load_that_was_under_way_when_its_key_was_dropped_is_not_kept():
    cache: Cache[int] = Cache(ttl=MINUTE, max_size=10)
    source = CountingSource()
    source.gate.clear()
    waiting = asyncio.create_task(cache.get("key", source.load))
    await until(lambda: source.asked == 1)

    await cache.drop("key")
    source.gate.set()

    assert await waiting == 1
    assert await cache.peek("key") is None
    assert await cache.get("key", source.load) == 2


async def test_values_put_after_a_clear_live_for_their_whole_time():
    ttl = timedelta(milliseconds=150)
    clock = asyncio.get_running_loop().time
    for _ in range(50):
        cache: Cache[str] = Cache(ttl=ttl, max_size=10)
        await cache.put("key", "old")
        await asyncio.sleep(0.1)
        await cache.clear()
        put_at = clock()
        await cache.put("key", "new")
        await asyncio.sleep(0.08)  # the old value's time is over by now, the new one's is not

        found = await cache.peek("key")
        if clock() - put_at < ttl.total_seconds():  # else the machine was too slow to tell
            assert found == "new"
            return
    raise AssertionError("no look came in time")


async def test_a_failed_load_is_raised_to_every_waiter_and_not_cached():
    cache: Cache[int] = Cache(ttl=MINUTE, max_size=10)

    async def fail() -> int:
        raise LookupError("no")

    results = await asyncio.gather(*(cache.get("key", fail) for _ in range(3)), return_exceptions=True)

    assert [type(result) for result in results] == [LookupError] * 3
    assert await cache.get("key", CountingSource().load) == 1


async def test_a_cache_that_does_not_exist_is_not_cleared():
    assert await Caches().clear("nonsense") is None


async def _value(key: str) -> str:
    return key


@pytest.mark.parametrize("many", [1, 3])
async def test_clearing_says_how_many_there_were(many: int):
    caches = Caches()
    cache = caches.new("some", str, ttl=MINUTE, max_size=10)
    for number in range(many):
        await cache.put(str(number), "x")

    assert await caches.clear("some") == many
    assert (await cache.stats()).size == 0
