"""One request to one endpoint, and what it says."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import aiohttp

MAX_BODY = 64 * 1024


@dataclass(frozen=True, slots=True)
class Probe:
    """What one request found. `problem` is for people; None when the endpoint is healthy."""

    url: str
    http_status: int | None
    problem: str | None

    @property
    def is_healthy(self) -> bool:
        return self.problem is None


class Prober:
    """Sends probes. A connection is never kept for the next one: each probe stands for a new visitor."""

    def __init__(self, *, timeout: timedelta) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout.total_seconds())
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def probe(self, url: str) -> Probe:
        """GET it. Never raises: a failure is a finding."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, connector=aiohttp.TCPConnector(force_close=True, limit=0)
            )
        try:
            # A redirect counts as an answer and is not followed: it may lead anywhere.
            async with self._session.get(url, allow_redirects=False) as response:
                await response.content.read(MAX_BODY)
                problem = None if response.status < 400 else f"answered {response.status}"
                return Probe(url, response.status, problem)
        except TimeoutError:
            return Probe(url, None, "no answer in time")
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            return Probe(url, None, f"no connection ({type(error).__name__})")
