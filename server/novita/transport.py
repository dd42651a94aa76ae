"""The way of every call: circuit, slot, leave from the limiter, the wire, the answer's meaning; again if that helps."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import structlog

from server.errors import CircuitOpen, NovitaError, ProviderError
from server.novita.breaker import Breaker, Permit
from server.novita.call import Call
from server.novita.fields import Fields, Unreadable, parse
from server.novita.http import Answer, ClientClosed, Http, NotConnected, TooLate
from server.novita.lane import Lane
from server.novita.limiter import Limiter
from server.novita.priority import Priority
from server.novita.retry import Retry
from server.novita.ticks import Ticks
from server.observe import metrics
from server.observe.traces import Kind, span

T = TypeVar("T")


class Transport:
    """Knows how calls are made, and no call in particular."""

    def __init__(
        self, http: Http, *, breaker: Breaker, limiter: Limiter, retry: Retry, slots_per_route: int, ticks: Ticks
    ) -> None:
        self._http = http
        self._breaker = breaker
        self._limiter = limiter
        self._retry = retry
        self._slots_per_route = slots_per_route
        self._ticks = ticks
        self._lanes: dict[str, Lane] = {}
        # Bound once: finding the configured logger anew costs more than all else that a filtered line does.
        self._log = structlog.get_logger().bind()

    async def call(self, call: Call, read: Callable[[Fields], T], *, priority: Priority) -> T:
        """Make the call and read its answer; raises NovitaError and nothing else."""
        asked_at = self._ticks.now() if call.asked_at is None else call.asked_at
        is_certain = True
        attempt = 0
        while True:
            attempt += 1
            try:
                return _read(await self._attempt(call, priority, asked_at, attempt), read)
            except NovitaError as error:
                # An earlier attempt may have been done without our learning of it, however clear this refusal is.
                is_certain = is_certain and error.is_certain_refusal
                error.is_certain_refusal = is_certain
                wait = self._retry.wait(call, error, attempt=attempt, elapsed=self._ticks.now() - asked_at)
                if wait is None:
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
            await self._ticks.sleep(wait)  # no slot and no token are held here

    async def _attempt(self, call: Call, priority: Priority, asked_at: float, attempt: int) -> Answer:
        route = call.route
        self._breaker.check(route)  # before waiting in any line: a call that can't be made fails at once
        lane = self._lanes.get(route)
        if lane is None:
            lane = self._lanes[route] = Lane(route, self._slots_per_route)
        if not lane.try_take(priority):
            with self._waiting(priority):
                await lane.take(priority, seconds=self._seconds_left(asked_at))
        try:
            if not self._limiter.try_take():
                with self._waiting(priority):
                    await self._limiter.take(route, priority, seconds=self._seconds_left(asked_at))
            if not call.is_repeatable and self._seconds_left(asked_at) <= 0:
                # Neither line was long, so we were paused. Others may have stopped looking for what it would make.
                self._limiter.give_back()
                raise TooLate("it was asked for too long ago")
            try:
                permit = self._breaker.enter(route)
            except CircuitOpen:
                self._limiter.give_back()  # it opened while we stood in line; those behind us learn it at once too
                raise
            with permit:
                return await self._send(call, permit, attempt)
        finally:
            lane.give_back()

    @contextmanager
    def _waiting(self, priority: Priority) -> Generator[None]:
        began = self._ticks.now()
        try:
            with span("novita.wait", priority=priority.name):
                yield
        finally:
            metrics.CALL_WAITS.observe(self._ticks.now() - began, priority.name)

    def _seconds_left(self, asked_at: float) -> float:
        return max(0.0, self._retry.deadline.total_seconds() - (self._ticks.now() - asked_at))

    async def _send(self, call: Call, permit: Permit, attempt: int) -> Answer:
        started = self._ticks.now()
        status: int | None = None
        outcome = "CANCELLED"
        try:
            with span(f"novita {call.route}", kind=Kind.CLIENT, attempt=attempt) as sending:
                answer = await self._http.send(call)
                sending.note(http_status=answer.status)
        except NovitaError as error:
            status, outcome = error.status, error.code
            _judge(error, permit)
            raise
        else:
            status, outcome = answer.status, "OK"
            permit.answered()
            return answer
        finally:
            metrics.CALLS.observe(self._ticks.now() - started, call.route, outcome)
            self._log.debug(
                "novita call",
                route=call.route,
                status=status,
                attempt=attempt,
                duration_ms=round((self._ticks.now() - started) * 1000, 1),
            )


def _judge(error: NovitaError, permit: Permit) -> None:
    if isinstance(error, ClientClosed):
        return  # leaving without a verdict
    if isinstance(error, NotConnected):
        permit.not_connected()
    elif error.status is None or error.status >= 500:
        permit.failed()  # without a status nothing came that could be read as an answer
    else:
        permit.answered()


def _read(answer: Answer, read: Callable[[Fields], T]) -> T:
    """The answer as a typed value."""
    try:
        return read(parse(answer.body))
    except Unreadable as unreadable:
        problem = str(unreadable)
    raise ProviderError(f"the answer can't be read: {problem}", status=answer.status)
