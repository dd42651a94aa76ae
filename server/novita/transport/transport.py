"""Makes a call: circuit breaker, route slot, rate limiter, HTTP, response; with retries."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import structlog

from server.errors import AccountRefusal, AuthFailed, CircuitOpen, NovitaError, ProviderError, RateLimited
from server.novita.transport.circuit_breaker import CircuitBreaker, Permit
from server.novita.transport.concurrency import CallPriority, RouteSlots
from server.novita.transport.http import ClientClosed, DeadlinePassed, HttpClient, HttpResponse, NotConnected
from server.novita.transport.json_reader import InvalidResponse, JsonReader, parse
from server.novita.transport.rate_limiter import CallRateLimiter, Turn
from server.novita.transport.request import BILLING_PREFIX, ApiCall, ignore_body
from server.novita.transport.retry import RetryPolicy, TransportClock
from server.observe import metrics
from server.observe.tracing import Kind, span

T = TypeVar("T")


class Transport:
    """Makes any call; knows none in particular."""

    def __init__(
        self,
        http: HttpClient,
        *,
        breaker: CircuitBreaker,
        limiter: CallRateLimiter,
        retry: RetryPolicy,
        slots_per_route: int,
        clock: TransportClock,
    ) -> None:
        self._http = http
        self._breaker = breaker
        self._limiter = limiter
        self._retry = retry
        self._slots_per_route = slots_per_route
        self._clock = clock
        self._slots: dict[str, RouteSlots] = {}
        # Awaited before each call; raises NovitaError while no call may be made.
        self.admit: Callable[[], Awaitable[None]] | None = None
        # Bound once: looking up the configured logger is the largest cost of a filtered line.
        self._log = structlog.get_logger().bind()

    async def call(
        self,
        call: ApiCall,
        read: Callable[[JsonReader], T],
        *,
        priority: CallPriority = CallPriority.USER,
        turn: Turn | None = None,
    ) -> T:
        """Make the call and read its response; raises only NovitaError. A call with a `turn` does not wait."""
        asked_at = self._clock.now() if call.asked_at is None else call.asked_at
        is_certain = True
        attempt = 0
        if self.admit is not None:
            await self.admit()
        while True:
            attempt += 1
            try:
                return _parse(await self._attempt(call, priority, turn, asked_at, attempt), read)
            except NovitaError as error:
                # An earlier attempt may have taken effect unnoticed, even if this one was clearly refused.
                is_certain = is_certain and error.is_certain_refusal
                error.is_certain_refusal = is_certain
                wait = self._retry.next_wait(call, error, attempt=attempt, elapsed=self._clock.now() - asked_at)
                if wait is None or (turn is not None and isinstance(error, RateLimited)):
                    raise
                metrics.RETRIES.add(call.route)
                self._log.warning(
                    "novita call is tried again",
                    route=call.route,
                    attempt=attempt,
                    after_seconds=round(wait, 3),
                    code=error.code,
                    status=error.status,
                    error=error.message,
                )
            await self._clock.sleep(wait)  # without holding a slot or a token

    async def check(self, route: str) -> None:
        """Raise NovitaError if a call of this route would be refused now, before it is sent."""
        if self.admit is not None:
            await self.admit()
        self._breaker.check(route)

    async def _attempt(
        self, call: ApiCall, priority: CallPriority, turn: Turn | None, asked_at: float, attempt: int
    ) -> HttpResponse:
        route = call.route
        self._breaker.check(route)  # before any queue: a call that can't be made fails at once
        slots = await self._wait_for_turn(route, priority, turn, asked_at)
        try:
            if turn is not None:
                await turn.use()
            if call.before_sending is not None:
                await call.before_sending()
            if not call.is_repeatable and self._seconds_left(asked_at) <= 0:
                # The queues time out earlier, so the process was paused. Another worker may have given this call up
                # and would not find what it creates.
                self._limiter.refund(priority)
                raise DeadlinePassed("the deadline passed before the request was sent")
            try:
                permit = self._breaker.enter(route)
            except CircuitOpen:
                self._limiter.refund(priority)  # it opened while we waited; the next in the queue fails at once too
                raise
            with permit:
                return await self._send(call, permit, attempt)
        finally:
            slots.release()

    async def _wait_for_turn(
        self, route: str, priority: CallPriority, turn: Turn | None, asked_at: float
    ) -> RouteSlots:
        """Take a slot of the route and a token of the rate limit; neither is held while waiting for the other.

        A slot held by a call that waits for the rate limit is lost to all calls of the route: with enough waiting
        calls, polling never found the share of free slots that it needs.
        """
        slots = self._slots.get(route)
        if slots is None:
            slots = self._slots[route] = RouteSlots(route, self._slots_per_route)
        while True:
            if not slots.try_acquire(priority):
                with self._measure_wait(priority):
                    await slots.acquire(priority, seconds=self._seconds_left(asked_at))
            if turn is not None:
                return slots
            if self._limiter.try_acquire(priority):
                return slots
            slots.release()
            with self._measure_wait(priority):
                await self._limiter.acquire(route, priority, seconds=self._seconds_left(asked_at))
            if slots.try_acquire(priority):
                return slots
            self._limiter.refund(priority)

    @contextmanager
    def _measure_wait(self, priority: CallPriority) -> Generator[None]:
        began = self._clock.now()
        try:
            with span("novita.wait", priority=priority.name):
                yield
        finally:
            metrics.CALL_WAITS.observe(self._clock.now() - began, priority.name)

    def _seconds_left(self, asked_at: float) -> float:
        return max(0.0, self._retry.deadline.total_seconds() - (self._clock.now() - asked_at))

    async def _send(self, call: ApiCall, permit: Permit, attempt: int) -> HttpResponse:
        started = self._clock.now()
        status: int | None = None
        outcome = "CANCELLED"
        try:
            with span(f"novita {call.route}", kind=Kind.CLIENT, attempt=attempt) as sending:
                response = await self._http.send(call)
                sending.note(http_status=response.status)
        except NovitaError as error:
            status, outcome = error.status, error.code
            if call.prefix != BILLING_PREFIX or not isinstance(error, AuthFailed):
                _report(error, permit)  # a key without the right to read bills is not a refused key
            if isinstance(error, RateLimited):
                await self._limiter.refused()
            raise
        else:
            status, outcome = response.status, "OK"
            permit.succeeded()
            self._limiter.succeeded()
            return response
        finally:
            metrics.CALLS.observe(self._clock.now() - started, call.route, outcome)
            self._log.debug(
                "novita call",
                route=call.route,
                status=status,
                attempt=attempt,
                duration_ms=round((self._clock.now() - started) * 1000, 1),
            )


class TurnTransport:
    """Makes the calls of one run of a job, which has its turn."""

    def __init__(self, transport: Transport, turn: Turn) -> None:
        self._transport = transport
        self._turn = turn

    async def call(
        self, call: ApiCall, read: Callable[[JsonReader], T], *, priority: CallPriority = CallPriority.USER
    ) -> T:
        """The class is that of the turn: it was chosen by what the job is for, not by the route."""
        return await self._transport.call(call, read, priority=self._turn.priority, turn=self._turn)

    async def check(self, route: str) -> None:
        await self._transport.check(route)


def _report(error: NovitaError, permit: Permit) -> None:
    if isinstance(error, ClientClosed):
        return  # no result
    if isinstance(error, NotConnected):
        permit.not_connected()
    elif isinstance(error, AccountRefusal):
        permit.refused(error)
    elif error.status is None or error.status >= 500:
        permit.failed()  # without a status there was no readable response
    else:
        permit.succeeded()


def _parse(response: HttpResponse, read: Callable[[JsonReader], T]) -> T:
    """The response as a typed value. What is ignored need not be JSON: any 2xx of such a call means accepted, but not
    a page, which only a gateway before the API sends."""
    try:
        if read is ignore_body:
            if response.body.lstrip().startswith(b"<"):
                raise InvalidResponse("it is a page")
            return read(JsonReader({}))
        return read(parse(response.body))
    except InvalidResponse as unreadable:
        problem = str(unreadable)
    raise ProviderError(f"invalid response: {problem}", status=response.status)
