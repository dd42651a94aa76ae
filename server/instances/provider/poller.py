"""Polls the provider for many clients: requests at about the same time share its calls.

A few machines are polled one by one, at once. More are read from pages of the provider's list, so that the number of
calls grows with pages and not with instances; small projects do not wait for those (`small_projects`). Polls use only a
part of the rate limit, which leaves room for users.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from server.batching import TokenBucket
from server.clock import now
from server.errors import NovitaError, PilotlightError, ProviderError, ValidationFailed
from server.instances.provider.poll_request import PageEntry, PollRequest, has_no_addresses
from server.instances.provider.small_projects import MOVING_SECONDS, SmallProjects
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.novita.models.base import ProviderPage
from server.novita.transport.concurrency import CallPriority

log = structlog.get_logger(__name__)

# At most so many are polled one by one and without waiting, and only while the bucket has tokens.
SINGLE_POLLS_MAX = 5
SINGLE_POLL_BURST = 10.0
PAGE_SIZE = 100
# From so many pages on, larger ones are requested; the response shows how large the provider makes them.
LARGE_PAGE_SIZE = 1_000
LARGE_PAGES_FROM = 2
PAGES_MAX = 1_000
# Seconds in which requests are collected into one round.
BATCH_WINDOW = 0.005
# Seconds that `poll` waits for a single poll before it raises NotYet.
WAIT_TIMEOUT = 0.5
SWEEP_INTERVAL_MIN = 1.0
# The part of the rate limit that sweeps use, and the limit that is assumed where there is none. A sweep of many pages
# that would take longer than SWEEP_INTERVAL_MAX uses up to RATE_SHARE_MAX, which leaves the rest for changes.
RATE_SHARE = 0.075
RATE_SHARE_MAX = 0.5
SWEEP_INTERVAL_MAX = 10.0
# While a machine is followed to its end, which a user waits for, sweeps come so much sooner; but not at once, because
# no machine has ended a moment after the call.
URGENT_PART = 1 / 3
URGENT_INTERVAL_MIN = 2.5
URGENT_DELAY = 1.5
ASSUMED_RATE_LIMIT = 600
# NotYet asks for at most this delay, in seconds.
RETRY_DELAY_MAX = 30.0
CONCURRENT_GETS = 16
# How long entries of a page serve later requests.
PAGE_TTL = timedelta(seconds=15)


class NotYet(PilotlightError):
    """Too many polls are waiting. Poll again after this time; the result will probably be there."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"poll again after {after.total_seconds():.1f} s")
        self.after = after


class InstancePoller:
    """One per process."""

    def __init__(self, novita: NovitaClient, *, calls_per_minute: int) -> None:
        self._novita = novita
        self._limit = (calls_per_minute or ASSUMED_RATE_LIMIT) / 60
        self._requests: dict[Hashable, PollRequest] = {}
        self._open: dict[str, list[PollRequest]] = {}
        self._page_entries: dict[str, PageEntry] = {}
        self._task: asyncio.Task[None] | None = None
        self._sweep_calls = 1  # of the last sweep: machines that move are usually on the first page
        self._first_page = 1  # its number, as far as we know
        self._is_first_page_known = False
        self._page_size = PAGE_SIZE
        self._largest_page = LARGE_PAGE_SIZE  # as far as we know
        self._round_at = 0.0  # when the last one began
        self._next_round_at = 0.0
        self._sooner = asyncio.Event()
        self._is_sweeping = False
        self._seconds_per_page = 60 / calls_per_minute if calls_per_minute else 0.05  # later measured
        self._single_polls = TokenBucket(RATE_SHARE_MAX * self._limit, SINGLE_POLL_BURST, time.monotonic())
        self._moving: dict[str, float] = {}  # when each machine was last polled, oldest first
        self._small_projects = SmallProjects(self._limit)
        self._beside: dict[str, asyncio.Task[None]] = {}  # polls of small projects, by machine

    async def poll(
        self,
        novita_id: str,
        *,
        client: Hashable,
        project_id: UUID | None = None,
        newer_than: datetime | None = None,
        needs_addresses: bool = True,
        is_urgent: bool = False,
    ) -> RemoteInstance:
        """The provider's present state of a machine. Raises NovitaError, or NotYet while many polls wait.

        After NotYet the result is kept for the same `client`, which has to call again: a job that waited here would
        block a slot for other jobs. With `newer_than`, an entry of a page that was read after that time serves as well:
        while pages are read all the time for a large fleet, no client has to call twice. Without `needs_addresses` a
        page that lacks the addresses of a running machine is enough. `is_urgent` asks for the next page sooner.
        """
        request = self._requests.get(client)
        if request is None and newer_than is not None:
            entry = self._page_entries.get(novita_id)
            is_enough = entry is not None and not (needs_addresses and entry.lacks_addresses)
            if entry is not None and is_enough and entry.asked_at > max(newer_than, now() - PAGE_TTL):
                return entry.remote
        if request is None or request.novita_id != novita_id or request.is_expired:
            request = self._requests[client] = self._add(novita_id, needs_addresses)
            if project_id is not None:
                self._small_projects.note(project_id, novita_id)
        if is_urgent and not request.done.is_set():
            interval = max(URGENT_INTERVAL_MIN, self._sweep_interval(self._sweep_calls) * URGENT_PART)
            urgent_at = max(self._round_at + interval, request.asked_at + URGENT_DELAY)
            self._next_round_at = min(self._next_round_at, urgent_at)
            self._sooner.set()
        if not request.done.is_set() and (self._can_poll_singly() or self._poll_beside(project_id, novita_id)):
            await request.wait(WAIT_TIMEOUT)
        if not request.done.is_set():
            beside = self._small_projects.pause_left(novita_id)
            delay = self._retry_delay()
            raise NotYet(timedelta(seconds=delay if beside is None else min(delay, max(0.25, beside))))
        del self._requests[client]
        return request.result()

    async def poll_now(self, novita_id: str) -> RemoteInstance:
        """The same, for a caller that waits."""
        request = self._add(novita_id)
        await request.done.wait()
        return request.result()

    async def close(self) -> None:
        tasks = [*self._beside.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, novita_id: str, needs_addresses: bool = True) -> PollRequest:
        request = PollRequest(novita_id, time.monotonic(), needs_addresses)
        self._moving.pop(novita_id, None)
        self._moving[novita_id] = request.asked_at
        self._open.setdefault(novita_id, []).append(request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="instance poller")
        return request

    def _poll_beside(self, project_id: UUID | None, novita_id: str) -> bool:
        """Poll a machine of a small project without waiting for the others; False if it has to wait."""
        if novita_id in self._beside:
            return True
        if project_id is None or not self._small_projects.take_poll(project_id, novita_id):
            return False
        task = asyncio.create_task(self._poll_singly([novita_id], before=time.monotonic()), name="single poll")
        self._beside[novita_id] = task
        task.add_done_callback(lambda _: self._beside.pop(novita_id, None))
        return True

    def _retry_delay(self) -> float:
        """Too short costs one more run of a cheap job, too long makes the result old."""
        waiting = 0.0 if self._is_sweeping else self._next_round_at - time.monotonic()
        pages = max(1.0, len(self._open) / self._page_size)
        # With jitter: clients that were refused together would otherwise call again together.
        jitter = random.uniform(0.0, max(0.3, pages * 0.1))
        return min(RETRY_DELAY_MAX, max(0.25, waiting) + pages * self._seconds_per_page + jitter)

    def _can_poll_singly(self) -> bool:
        """Whether the machines that wait now can be polled one by one, at once: only while no more than a handful move,
        or a burst of creates would spend as many calls on looking as on creating."""
        at = time.monotonic()
        while self._moving and next(iter(self._moving.values())) < at - MOVING_SECONDS:
            del self._moving[next(iter(self._moving))]
        return max(len(self._open), len(self._moving)) <= min(SINGLE_POLLS_MAX, self._single_polls.tokens(at))

    def _sweep_interval(self, calls: int) -> float:
        usual = min(calls / (RATE_SHARE * self._limit), SWEEP_INTERVAL_MAX)
        return max(SWEEP_INTERVAL_MIN, usual, calls / (RATE_SHARE_MAX * self._limit))

    async def _run(self) -> None:
        """Run rounds while requests are open."""
        while self._open:
            await asyncio.sleep(BATCH_WINDOW)
            singly = self._can_poll_singly()
            while not singly and (left := self._next_round_at - time.monotonic()) > 0:
                self._sooner.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._sooner.wait()
            started = time.monotonic()
            count = len(self._open)
            try:
                if singly:
                    self._single_polls.charge(count, started, debt_max=0)
                    await self._poll_singly(list(self._open), before=started)
                else:
                    self._round_at = started
                    self._next_round_at = started + self._sweep_interval(min(count, self._sweep_calls))
                    self._is_sweeping = True
                    calls = 1
                    if count == 1:
                        await self._poll_singly(list(self._open), before=started)
                    else:
                        calls = self._sweep_calls = await self._sweep(started)
                    self._seconds_per_page += 0.3 * ((time.monotonic() - started) / calls - self._seconds_per_page)
            except Exception as error:
                # A bug must not leave requests waiting for ever.
                log.exception("lookout.failed")
                self._fail(started, ProviderError(f"the poll failed: {type(error).__name__}"))
            finally:
                self._is_sweeping = False
            self._drop_expired()

    async def _sweep(self, started: float) -> int:
        """Read pages until all requests from before `started` are answered, or until those that are left cost less one
        by one than on the other pages. Poll singly what was on none. Return the calls that count for the next interval:
        not those for addresses, and not the first single one, because every machine that ends costs one."""
        incomplete: set[str] = set()
        listed: set[str] = set()
        size, first_size, pages = self._page_size, 0, 0

        async def read(page: int) -> ProviderPage[RemoteInstance]:
            nonlocal pages
            pages += 1
            sent, asked_at = time.monotonic(), now()
            response = await self._novita.instances(page=page, page_size=size, priority=CallPriority.POLL)
            for remote in response.items:
                lacks_addresses = has_no_addresses(remote)
                self._page_entries[remote.id] = PageEntry(remote, asked_at, lacks_addresses)
                if remote.id not in self._open:
                    continue
                self._answer(remote.id, remote, None, before=sent, has_addresses=not lacks_addresses)
                if remote.id in self._open and lacks_addresses:
                    incomplete.add(remote.id)
            return response

        def unseen() -> int:
            return sum(each not in incomplete for each in self._waiting_since(started))

        try:
            for page in range(self._first_page, PAGES_MAX + 1):
                try:
                    response = await read(page)
                except NovitaError as error:
                    if size <= PAGE_SIZE or error.retryable:
                        raise
                    self._largest_page = self._page_size = PAGE_SIZE  # it refuses larger pages
                    return pages  # the next round reads pages of the usual size
                before = len(listed)
                listed.update(remote.id for remote in response.items)
                if response.total is not None and len(listed) >= response.total:
                    self._is_first_page_known = True
                if page == self._first_page:
                    first_size = len(response.items)
                # A short page that others follow: it returns no larger ones.
                follows = page > self._first_page and len(listed) > before
                is_followed = self._is_first_page_known and response.total is not None and response.total > first_size
                if (follows or is_followed) and first_size < size:
                    size = self._largest_page = max(1, first_size)
                # The largest page that is served is unknown, so a short page is the last only if the total agrees.
                is_last = len(response.items) < size and (response.total is None or len(listed) >= response.total)
                pages_left = 0
                if response.total is not None:
                    self._choose_page_size(response.total)
                    pages_left = -(-(response.total - len(listed)) // size) if self._is_first_page_known else 0
                if is_last or len(listed) == before or unseen() <= max(0, pages_left):
                    break
            if not self._is_first_page_known and unseen():
                await self._find_first_page(read, listed)
        except NovitaError as error:
            self._fail(started, error)
            return max(1, pages)
        calls = pages + max(0, unseen() - 1)
        await self._poll_singly(self._waiting_since(started), before=started)
        return calls

    async def _find_first_page(
        self, read: Callable[[int], Awaitable[ProviderPage[RemoteInstance]]], listed: set[str]
    ) -> None:
        """Read page 0, because some machines are on no other. Pages that begin there have none of the others on it."""
        try:
            found = {remote.id for remote in (await read(0)).items}
        except ValidationFailed:
            found = set[str]()  # it has no page 0
        if found and found.isdisjoint(listed):
            self._first_page = 0
        self._is_first_page_known = bool(found or listed)

    def _choose_page_size(self, total: int) -> None:
        is_large = total > (LARGE_PAGES_FROM - 1) * PAGE_SIZE
        self._page_size = self._largest_page if is_large else min(PAGE_SIZE, self._largest_page)

    async def _poll_singly(self, novita_ids: Iterable[str], *, before: float) -> None:
        slots = asyncio.Semaphore(CONCURRENT_GETS)

        async def get(novita_id: str) -> None:
            async with slots:
                sent = time.monotonic()
                try:
                    remote = await self._novita.instance(novita_id, priority=CallPriority.POLL)
                except NovitaError as error:
                    self._answer(novita_id, None, error, before=sent)
                else:
                    self._answer(novita_id, remote, None, before=sent)

        await asyncio.gather(*(get(novita_id) for novita_id in novita_ids))

    def _waiting_since(self, started: float) -> list[str]:
        # The requests of a machine are in the order of their times.
        return [novita_id for novita_id, requests in self._open.items() if requests[0].asked_at <= started]

    def _fail(self, started: float, error: NovitaError) -> None:
        for novita_id in self._waiting_since(started):
            self._answer(novita_id, None, error, before=started)

    def _answer(
        self,
        novita_id: str,
        remote: RemoteInstance | None,
        error: NovitaError | None,
        *,
        before: float,
        has_addresses: bool = True,
    ) -> None:
        """Finish the requests from before the call was sent; for later ones its result is too old."""
        waiting: list[PollRequest] = []
        for request in self._open.pop(novita_id, []):
            if request.asked_at <= before and (has_addresses or not request.needs_addresses):
                request.finish(remote, error)
            else:
                waiting.append(request)
        if waiting:
            self._open[novita_id] = waiting

    def _drop_expired(self) -> None:
        for client in [client for client, request in self._requests.items() if request.is_expired]:
            del self._requests[client]
        fresh_from = now() - PAGE_TTL
        self._page_entries = {id: each for id, each in self._page_entries.items() if each.asked_at > fresh_from}
