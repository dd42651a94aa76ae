"""Redis behind the caches, so that all processes share them. Without it everything still works, only slower."""

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import structlog
from pydantic import SecretStr

from server.errors import StartupProblem
from server.observe import metrics

log = structlog.get_logger(__name__)

T = TypeVar("T")

# A cache that takes longer than this is slower than what it saves.
TIMEOUT = timedelta(milliseconds=250)
# After a failure Redis is left alone for so long: a request makes several look-ups, and must not wait for each.
PAUSE = timedelta(seconds=2)
PREFIX = "pilotlight"


class Away(Exception):
    """Redis can't be asked at the moment."""


class Shared:
    """One connection pool for all caches of a process."""

    def __init__(self, url: SecretStr, *, timeout: timedelta = TIMEOUT, pause: timedelta = PAUSE) -> None:
        try:
            redis: Any = importlib.import_module("redis.asyncio")
            self._backend: Any = importlib.import_module("aiocache.backends.redis").RedisCache
            self._serializer: Any = importlib.import_module("aiocache.serializers").NullSerializer
        except ImportError:
            raise StartupProblem("REDIS_URL needs the redis package: pip install 'pilotlight[redis]'") from None
        self._timeout = timeout.total_seconds()
        self._pause = pause.total_seconds()
        try:
            self._client: Any = redis.Redis.from_url(
                url.get_secret_value(),
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
                decode_responses=False,
                max_connections=64,
            )
        except ValueError:
            # Not chained: the message of the cause may show the password.
            raise StartupProblem("REDIS_URL must look like redis://user:password@host:6379/0") from None
        self._away_until = 0.0
        self._is_away = False

    @property
    def is_away(self) -> bool:
        """Whether the last thing asked of it failed."""
        return self._is_away

    def storage(self, name: str) -> Any:
        """aiocache's Redis backend for one cache, over our pool; its values are bytes."""
        storage = self._backend(serializer=self._serializer(encoding=None), namespace=f"{PREFIX}:{name}", timeout=0)
        storage.client = self._client
        return storage

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Raises Away, at once while Redis is known to be away."""
        if time.monotonic() < self._away_until:
            raise Away
        try:
            async with asyncio.timeout(self._timeout):
                answer = await question()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a cache, the answer is to do without it
            metrics.REDIS_FAILURES.add()
            self._away_until = time.monotonic() + self._pause
            if not self._is_away:
                self._is_away = True
                log.warning("cache.redis_away", error=type(error).__name__)
            raise Away from None
        if self._is_away:
            self._is_away = False
            log.info("cache.redis_back")
        return answer

    async def keys(self, name: str) -> list[str]:
        """Every key of one cache, without its prefix."""
        prefix = f"{PREFIX}:{name}:"

        async def scan() -> list[str]:
            return [key.decode().removeprefix(prefix) async for key in self._client.scan_iter(f"{prefix}*", count=500)]

        return await self.ask(scan)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.aclose()
        except Exception as error:  # noqa: BLE001 - we are leaving, and it may be gone already
            log.debug("cache.redis_close_failed", error=type(error).__name__)
