"""The provider's API as one class; every call to the provider goes through it."""

import copy
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol

from pydantic import SecretStr

from server.errors import ProviderNotFound
from server.novita.endpoints.billing import BillingCalls
from server.novita.endpoints.catalog import CatalogCalls
from server.novita.endpoints.images import ImageCalls
from server.novita.endpoints.instances import InstanceCalls
from server.novita.endpoints.jobs import JobCalls
from server.novita.endpoints.metrics import MetricsCalls
from server.novita.endpoints.storage import StorageCalls
from server.novita.endpoints.templates import TemplateCalls
from server.novita.transport.budget import CallBudget
from server.novita.transport.circuit_breaker import BreakerSnapshot, CircuitBreaker
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.http import HttpClient
from server.novita.transport.json_reader import InvalidResponse, parse
from server.novita.transport.rate_limiter import CallRateLimiter, LimiterSnapshot, Turn
from server.novita.transport.request import ApiTransport, get
from server.novita.transport.retry import MonotonicClock, RetryPolicy, TransportClock
from server.novita.transport.transport import Transport, TurnTransport

__all__ = ["CallGuard", "CallPriority", "ClientSnapshot", "NovitaClient"]


class CallGuard(Protocol):
    """Decides whether calls may be made, and whether a response comes from the right provider."""

    async def admit(self) -> None: ...
    def check_sender(self, status: int, world_id: str | None) -> None: ...


@dataclass(frozen=True, slots=True)
class ClientSnapshot:
    breaker: BreakerSnapshot
    limiter: LimiterSnapshot


class NovitaClient(
    CatalogCalls, InstanceCalls, JobCalls, MetricsCalls, TemplateCalls, StorageCalls, ImageCalls, BillingCalls
):
    """Use it with `async with`, or open and close it. Every method raises only NovitaError and takes a `priority`:
    calls that a user waits for go before polling calls."""

    def __init__(
        self,
        *,
        base_url: str,  # the host only: "https://api.novita.ai"
        api_key: SecretStr,
        request_timeout: timedelta = timedelta(seconds=30),
        rate_limit_per_minute: int = 100,  # 0: no limit
        budget: CallBudget | None = None,  # shared with other clients; None: its own
        breaker_threshold: int = 5,  # failures in a row; 0: never opens
        breaker_recovery: timedelta = timedelta(seconds=60),
        breaker: CircuitBreaker | None = None,  # shared with another client of this process
        retry: RetryPolicy | None = None,
        slots_per_route: int = 64,  # concurrent calls of one route
        clock: TransportClock | None = None,
    ) -> None:
        clock = clock or MonotonicClock()
        self.breaker = breaker or CircuitBreaker(threshold=breaker_threshold, recovery=breaker_recovery, clock=clock)
        self.limiter = CallRateLimiter(rate_limit_per_minute, clock, budget)
        self._http = HttpClient(base_url, api_key, request_timeout)
        self.now = clock.now  # for `asked_at` of calls that must not be sent much later
        transport = Transport(
            self._http,
            breaker=self.breaker,
            limiter=self.limiter,
            retry=retry or RetryPolicy(),
            slots_per_route=slots_per_route,
            clock=clock,
        )
        self._guarded = transport
        self._transport: ApiTransport = transport

    def with_turn(self, turn: Turn) -> "NovitaClient":
        """The same client for one run of a job that has its turn: its calls wait for no other."""
        client = copy.copy(self)
        client._transport = TurnTransport(self._guarded, turn)
        return client

    def guard(self, guard: CallGuard) -> None:
        """From now on, every call is admitted by the guard and every response checked by it."""
        self._guarded.admit = guard.admit
        self._http.check_sender = guard.check_sender

    async def read_world_id(self) -> str | None:
        """The simulated world behind the address, None at the real provider. Not guarded, and sent once."""
        return (await self._http.send(get("/clusters"), checks_sender=False)).world_id

    async def has_instance(self, novita_id: str) -> bool:
        """Whether this account can see the instance. Not guarded, and sent once."""
        try:
            response = await self._http.send(get("/gpu/instance", instanceId=novita_id), checks_sender=False)
            return parse(response.body).text("id") == novita_id
        except (ProviderNotFound, InvalidResponse):
            return False

    async def open(self) -> None:
        self._http.open()

    async def close(self) -> None:
        await self._http.close()
        await self.limiter.close()

    @property
    def has_spare_calls(self) -> bool:
        return self.limiter.is_on and not self.limiter.is_short

    @property
    def is_short_of_calls(self) -> bool:
        return self.limiter.is_on and self.limiter.is_short

    def snapshot(self) -> ClientSnapshot:
        """State of circuit breaker and rate limiter, for serverInfo and metrics."""
        return ClientSnapshot(self.breaker.snapshot(), self.limiter.snapshot())

    async def __aenter__(self) -> "NovitaClient":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
