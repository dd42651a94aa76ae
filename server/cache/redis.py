"""Redis behind the caches, so that all processes share them. Without Redis everything works, only slower."""

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

# A slower response would cost more than the cache saves.
TIMEOUT = timedelta(milliseconds=250)
# After a failure no calls for this long: a request makes several look-ups and must not wait for each.
PAUSE = timedelta(seconds=2)
PREFIX = "pilotlight"


class RedisUnavailable(Exception):
    """Redis does not respond, or failed a moment ago."""


class RedisBackend:
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
        self._paused_until = 0.0
        self._is_unavailable = False

    @property
    def is_unavailable(self) -> bool:
        """Whether the last call failed."""
        return self._is_unavailable

    def storage(self, name: str) -> Any:
        """aiocache's Redis backend for one cache, on the shared connection pool; values are bytes."""
        storage = self._backend(serializer=self._serializer(encoding=None), namespace=f"{PREFIX}:{name}", timeout=0)
        storage.client = self._client
        return storage

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Raises RedisUnavailable; without a call if the last failure was less than `pause` ago."""
        if time.monotonic() < self._paused_until:
            raise RedisUnavailable
        try:
            async with asyncio.timeout(self._timeout):
                result = await operation()
        except Exception as error:  # noqa: BLE001 - any failure of a cache means: go on without it
            metrics.REDIS_FAILURES.add()
            self._paused_until = time.monotonic() + self._pause
            if not self._is_unavailable:
                self._is_unavailable = True
                log.warning("cache.redis_away", error=type(error).__name__)
            raise RedisUnavailable from None
        if self._is_unavailable:
            self._is_unavailable = False
            log.info("cache.redis_back")
        return result

    async def ping(self) -> bool:
        """Whether it responds; no call is made within `pause` of a failure."""
        try:
            await self.call(self._client.ping)
        except RedisUnavailable:
            return False
        return True

    async def keys(self, name: str) -> list[str]:
        """Every key of one cache, without its prefix."""
        prefix = f"{PREFIX}:{name}:"

        async def scan() -> list[str]:
            return [key.decode().removeprefix(prefix) async for key in self._client.scan_iter(f"{prefix}*", count=500)]

        return await self.call(scan)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.aclose()
        except Exception as error:  # noqa: BLE001 - the process is stopping, and Redis may be gone
            log.debug("cache.redis_close_failed", error=type(error).__name__)
