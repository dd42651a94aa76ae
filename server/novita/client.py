"""The client: every call to the provider goes through one of these."""

from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

from pydantic import SecretStr

from server.novita.breaker import Breaker, BreakerSnapshot
from server.novita.calls.catalog import CatalogCalls
from server.novita.calls.images import ImageCalls
from server.novita.calls.instances import InstanceCalls
from server.novita.calls.storage import StorageCalls
from server.novita.calls.templates import TemplateCalls
from server.novita.http import Http
from server.novita.limiter import Limiter, LimiterSnapshot
from server.novita.priority import Priority
from server.novita.retry import Retry
from server.novita.ticks import RealTicks, Ticks
from server.novita.transport import Transport

__all__ = ["ClientSnapshot", "NovitaClient", "Priority"]


@dataclass(frozen=True, slots=True)
class ClientSnapshot:
    breaker: BreakerSnapshot
    limiter: LimiterSnapshot


class NovitaClient(CatalogCalls, InstanceCalls, TemplateCalls, StorageCalls, ImageCalls):
    """Use it as `async with`, or open and close it. Every method raises NovitaError and nothing else, and takes a
    `priority`: calls that a person waits for go before polling ones."""

    def __init__(
        self,
        *,
        base_url: str,  # the host only: "https://api.novita.ai"
        api_key: SecretStr,
        request_timeout: timedelta = timedelta(seconds=30),
        rate_limit_per_minute: int = 100,  # 0 switches it off
        breaker_threshold: int = 5,  # failures in a row; 0 switches it off
        breaker_recovery: timedelta = timedelta(seconds=60),
        retry: Retry | None = None,
        slots_per_route: int = 64,  # calls of one route under way at once
        ticks: Ticks | None = None,
    ) -> None:
        ticks = ticks or RealTicks()
        self.breaker = Breaker(threshold=breaker_threshold, recovery=breaker_recovery, ticks=ticks)
        self.limiter = Limiter(rate_limit_per_minute, ticks)
        self._http = Http(base_url, api_key, request_timeout)
        self.moment = ticks.now  # when something was decided on, for calls that must not be made much later
        self._caller = Transport(
            self._http,
            breaker=self.breaker,
            limiter=self.limiter,
            retry=retry or Retry(),
            slots_per_route=slots_per_route,
            ticks=ticks,
        )

    async def open(self) -> None:
        self._http.open()

    async def close(self) -> None:
        await self._http.close()
        await self.limiter.close()

    def snapshot(self) -> ClientSnapshot:
        """How the way to the provider is doing, for people and metrics."""
        return ClientSnapshot(self.breaker.snapshot(), self.limiter.snapshot())

    async def __aenter__(self) -> "NovitaClient":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
