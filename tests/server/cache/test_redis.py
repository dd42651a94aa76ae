"""Caches in a real Redis: shared between processes, typed, and optional when it dies."""

import asyncio
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from server.cache.cache import read_shared, shared_type
from server.cache.redis import RedisBackend
from server.cache.registry import Caches
from server.catalog.catalog import Catalog
from server.novita.models import Product, RegistryAuth, RemoteInstance, Template
from tests.support.waiting import until
from tests.support.world import World

MINUTE = timedelta(minutes=1)
BINARY = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(BINARY is None, reason="no redis-server on this machine (Debian: redis-server)")


class Redis:
    """A server of the test's own, which it may kill and start again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> SecretStr:
        return SecretStr(f"redis://127.0.0.1:{self.port}/0")

    async def start(self) -> None:
        command = [str(BINARY), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        await until(self._is_listening)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    with tempfile.TemporaryDirectory(prefix="pilotlight-redis-") as folder:
        redis = Redis(Path(folder))
        await redis.start()
        try:
            yield redis
        finally:
            redis.kill()


@needs_redis
async def test_what_one_process_loaded_the_other_finds(redis: Redis, world: World):
    first, second = _catalog(redis, world), _catalog(redis, world)
    products = (await first[0].products(None, "spot")).value
    regions = await first[0].regions()
    asked = world.calls()

    assert (await second[0].products(None, "spot")).value == tuple(products)
    assert await second[0].regions() == tuple(regions)
    assert world.calls() == asked
    for _, caches in (first, second):
        await caches.close()


@needs_redis
async def test_no_registry_password_and_no_template_is_in_redis(redis: Redis, world: World):
    catalog, caches = _catalog(redis, world)
    assert [auth.username for auth in await catalog.registry_auths()] == ["robot"]
    await catalog.template("107673")  # its variables may be secrets
    await catalog.templates()

    stored = await _everything(redis)

    assert len(stored) == 1
    assert b"robot" in stored[0]
    assert b"not-a-real-password" not in stored[0]
    await caches.close()


@needs_redis
async def test_a_clear_in_one_process_is_a_clear_in_all(redis: Redis, world: World):
    (first, ours), (_, theirs) = _catalog(redis, world), _catalog(redis, world)
    await first.products(None, "spot")
    assert [(stats.name, stats.size) for stats in await theirs.stats(first=5) if stats.size] == [("products", 1)]

    assert await theirs.clear("products") == 1

    asked = world.calls()
    await first.products(None, "spot")
    assert world.calls() == asked + 1
    for caches in (ours, theirs):
        await caches.close()


@needs_redis
async def test_redis_dying_costs_no_answer_and_one_line_in_the_log(redis: Redis, world: World):
    catalog, caches = _catalog(redis, world, pause=timedelta(milliseconds=50))
    warm = (await catalog.products(None, "spot")).value
    asked = world.calls()

    redis.kill()
    with capture_logs() as lines:
        answers = [(await catalog.products(None, "spot")).value for _ in range(20)]
        await asyncio.gather(*(catalog.products(None, "onDemand") for _ in range(20)))

    assert answers == [warm] * 20
    assert world.calls() == asked + 1  # the new one, once for all who asked
    assert [line["event"] for line in lines if line["event"].startswith("cache.")] == ["cache.redis_away"]

    await redis.start()

    async def is_back() -> bool:
        await catalog.products(None, "spot")
        return any("* spot 1" in stats.keys for stats in await caches.stats(first=9) if stats.name == "products")

    await asyncio.sleep(0.06)
    await caches.clear("products")
    await until(is_back)
    await caches.close()


@needs_redis
async def test_a_redis_that_hangs_is_given_up_quickly(redis: Redis, world: World):
    with socket.socket() as silent:  # accepts, and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        url = SecretStr(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        caches = Caches(RedisBackend(url, timeout=timedelta(milliseconds=50)))
        catalog = Catalog(world.novita, product_ttl=MINUTE, template_ttl=MINUTE, caches=caches)

        async with asyncio.timeout(20):
            for _ in range(50):
                await catalog.products(None, "spot")

        assert world.calls("GET /products") == 1
        await caches.close()


def test_what_was_written_is_read_back_with_its_types():
    auth = RegistryAuth("a1", "registry.example.test", "robot")
    auths = shared_type(tuple[RegistryAuth, ...])
    assert read_shared(auths, auths.dump_json((auth,))) == ((auth,),)

    moment = shared_type(datetime | None)
    assert read_shared(moment, moment.dump_json(datetime(2026, 1, 2, 3, tzinfo=UTC))) == (
        datetime(2026, 1, 2, 3, tzinfo=UTC),
    )
    assert read_shared(moment, b"null") == (None,)
    shared_type(Template)
    shared_type(tuple[Product, ...])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b'{"id": 1}',
        b'"x"',
        b'[{"id": 1, "name": "a", "username": "b"}]',
        b"{}",
        b'[{"id":"1","name":"a","username":"b","more":"c"}]',
        b'[{"id":"1","name":"a"}]',
    ],
)
def test_bytes_of_other_code_are_refused_not_guessed_at(data: bytes):
    assert read_shared(shared_type(tuple[RegistryAuth, ...]), data) is None


def test_a_type_that_holds_a_secret_can_not_be_shared():
    with pytest.raises(TypeError, match="SecretStr"):
        shared_type(RemoteInstance)


def _catalog(redis: Redis, world: World, **options: timedelta) -> tuple[Catalog, Caches]:
    caches = Caches(RedisBackend(redis.url, **options))
    return Catalog(world.novita, product_ttl=MINUTE, template_ttl=MINUTE, caches=caches), caches


async def _everything(redis: Redis) -> list[bytes]:
    import redis.asyncio as client  # noqa: PLC0415 - an optional package

    connection = client.Redis(port=redis.port)
    try:
        return [await connection.get(key) async for key in connection.scan_iter()]
    finally:
        await connection.aclose()
