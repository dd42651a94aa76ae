"""Polls the provider for many clients: requests at about the same time share its calls.

A few machines are polled one by one, at once. More are read from pages of the provider's list, so that the number of
calls grows with pages and not with instances. Pages come sooner while the rate limit has calls left over, and when a
machine is expected whose user waits for it. Ends that users wait for get looks of their own.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from server.clock import now
from server.errors import NovitaError, ProviderError, ValidationFailed
from server.instances.provider.arrivals import Arrivals
from server.instances.provider.few_machines import SINGLE_POLLS_MAX, SinglePolls, SmallProjects
from server.instances.provider.poll_request import (
    FIRST_END_LOOK,
    EndLooks,
    Followers,
    NotYet,
    PageEntries,
    PageEntry,
    PollRequest,
    Wake,
    has_no_addresses,
)
from server.instances.provider.states import MachineState, state_of
from server.instances.provider.sweep_schedule import SweepSchedule
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.novita.models.base import ProviderPage
from server.novita.transport.concurrency import CallPriority

log = structlog.get_logger(__name__)

PAGE_SIZE = 100
# From so many pages on, larger ones are requested; the response shows how large the provider makes them.
LARGE_PAGE_SIZE = 1_000
LARGE_PAGES_FROM = 2
PAGES_MAX = 1_000
BATCH_WINDOW = 0.005  # seconds in which requests are collected into one round
WAIT_TIMEOUT = 0.5  # seconds that `poll` waits for a single poll before it raises NotYet
ASSUMED_RATE_LIMIT = 600  # where there is none
END_LOOK_MARGIN = 0.3  # seconds that its call takes
OVERDUE_MAX = 3.0  # seconds; one that is later than this is not waited for any more than others
RETRY_DELAY_MAX = 30.0  # seconds that NotYet asks for at most
FEW_RETRY_DELAY_MAX = 2.5
CONCURRENT_GETS = 16
END_PAGE_SOONER = 5.0  # seconds; a page that is due so soon is read now if it shows an end


class InstancePoller:
    """One per process."""

    def __init__(self, novita: NovitaClient, *, calls_per_minute: int, wake: Wake | None = None) -> None:
        """`wake` gets the clients that were asked to poll later, and for whose machines there is news."""
        self._novita = novita
        self._limit = (calls_per_minute or ASSUMED_RATE_LIMIT) / 60
        self._requests: dict[Hashable, PollRequest] = {}
        self._open: dict[str, list[PollRequest]] = {}
        self.pages = PageEntries()
        self._task: asyncio.Task[None] | None = None
        self._schedule = SweepSchedule(self._limit)
        self._first_page = 1  # its number, as far as we know
        self._is_first_page_known = False
        self._page_size = PAGE_SIZE
        self._largest_page = LARGE_PAGE_SIZE  # as far as we know
        self._is_sweeping = False
        self._seconds_per_page = 60 / calls_per_minute if calls_per_minute else 0.05  # later measured
        self._single_polls = SinglePolls(self._limit)
        self._small_projects = SmallProjects()
        self._arrivals = Arrivals()
        self._followers, self._end_looks = Followers(wake), EndLooks(self._look_at_end)

    async def poll(
        self,
        novita_id: str,
        *,
        client: Hashable,
        project_id: UUID | None = None,
        newer_than: datetime | None = None,
        needs_addresses: bool = True,
        is_urgent: bool = False,
        leaves_list: bool = False,
        kind: Hashable = None,
    ) -> RemoteInstance:
        """The provider's present state of a machine. Raises NovitaError, or NotYet while many polls wait.

        After NotYet the result is kept for the same `client`, which has to call again: a job that waited here would
        block a slot for other jobs. With `newer_than`, an entry of a page that was read after that time serves as well:
        while pages are read all the time for a large fleet, no client has to call twice. Without `needs_addresses` a
        page that lacks the addresses of a running machine is enough. `is_urgent`, for an end: look soon; `leaves_list`,
        if no page shows it. With a `kind`, a page is read when such machines usually run, where few are on the move.
        """
        request = self._requests.get(client)
        if request is None and newer_than is not None:
            remote = self.pages.find(novita_id, newer_than=newer_than, needs_addresses=needs_addresses)
            if remote is not None:
                return self._followers.show(remote, client)
        if request is None or request.novita_id != novita_id or request.is_expired:
            new = PollRequest(novita_id, time.monotonic(), needs_addresses, is_urgent, leaves_list)
            request = self._requests[client] = self._add(new)
            if project_id is not None:
                self._small_projects.note(project_id, novita_id)
            if kind is not None:
                self._arrivals.began(kind, novita_id)
        look_in: float | None = None
        if not request.done.is_set():
            if self._novita.has_spare_calls:
                self._schedule.ask_for(time.monotonic())
            elif is_urgent:
                look_in = self._end_looks.begin(request, was_shown=self._followers.has_shown(novita_id, client))
                if look_in is None:
                    self._schedule.ask_for(request.asked_at + FIRST_END_LOOK)
            elif project_id is not None and self._small_projects.is_small(project_id):
                self._sweep_when_expected(novita_id)
            if self._can_poll_singly():
                await request.wait(WAIT_TIMEOUT)
        if not request.done.is_set():
            self._followers.note(novita_id, client)
            raise NotYet(timedelta(seconds=self._retry_delay() if look_in is None else look_in + END_LOOK_MARGIN))
        del self._requests[client]
        return self._followers.show(request.result(), client)

    async def poll_now(self, novita_id: str) -> RemoteInstance:
        """The same, for a caller that waits."""
        request = self._add(PollRequest(novita_id, time.monotonic()))
        await request.done.wait()
        return request.result()

    async def _look_at_end(self, novita_id: str) -> None:
        """By a page if others wait for one that is due soon: it costs as much, and is in the place of that page."""
        request = next(iter(self._open.get(novita_id, ())), None)
        if request is not None and self._is_shown_by_next_page(request):
            self._schedule.ask_now()
            await request.wait(END_PAGE_SOONER)
        if request is not None and not request.done.is_set():
            await self._poll_singly([novita_id])
        await self._followers.wake()

    def _is_shown_by_next_page(self, request: PollRequest) -> bool:
        is_listed = not request.leaves_list and self.pages.find(request.novita_id) is not None
        is_due_soon = not self._is_sweeping and self._schedule.left < END_PAGE_SOONER
        return is_listed and is_due_soon and len(self._open) > 1 and self._schedule.calls == 1

    async def close(self) -> None:
        await self._end_looks.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _add(self, request: PollRequest) -> PollRequest:
        self._single_polls.note(request.novita_id, request.asked_at)
        self._open.setdefault(request.novita_id, []).append(request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="instance poller")
        return request

    def _sweep_when_expected(self, novita_id: str) -> None:
        expected_at = self._arrivals.expected_at(novita_id)
        if expected_at is not None and expected_at > time.monotonic() - OVERDUE_MAX:
            self._schedule.ask_for(expected_at)

    def _retry_delay(self) -> float:
        """Too short costs one more run of a cheap job, too long makes the result old."""
        waiting = 0.0 if self._is_sweeping else self._schedule.left
        pages = max(1.0, len(self._open) / self._page_size)
        # With jitter: clients that were refused together would otherwise call again together.
        jitter = random.uniform(0.0, max(0.3, pages * 0.1))
        # A few look again soon: the rate limit may have calls to spare by then.
        longest = RETRY_DELAY_MAX if self._single_polls.moving > SINGLE_POLLS_MAX else FEW_RETRY_DELAY_MAX
        return min(longest, max(0.25, waiting) + pages * self._seconds_per_page + jitter)

    def pause(self, usual: timedelta) -> timedelta:
        """How long to wait after a result without news: not beyond the next page, which may have some."""
        is_expected = self._is_sweeping or self._schedule.left > 0
        return min(usual, timedelta(seconds=self._retry_delay())) if is_expected else usual

    def _can_poll_singly(self) -> bool:
        return self._single_polls.has_room(len(self._open), is_busy=self._novita.is_short_of_calls)

    async def _run(self) -> None:
        """Run rounds while requests are open."""
        while self._open:
            await asyncio.sleep(BATCH_WINDOW)
            singly = self._can_poll_singly()
            if not singly:
                await self._schedule.wait()
            started = time.monotonic()
            count = len(self._open)
            try:
                if singly:
                    self._single_polls.charge(count, started)
                    await self._poll_singly(list(self._open))
                else:
                    priority = CallPriority.END if self._schedule.is_urgent else CallPriority.POLL
                    expected = min(count, self._schedule.calls)
                    self._schedule.begin(calls=expected, has_spare=self._novita.has_spare_calls)
                    self._is_sweeping, calls = True, 1
                    if count == 1 and self._schedule.calls > 1:  # else a page costs no more, and serves later polls
                        await self._poll_singly(list(self._open))
                    else:
                        calls = self._schedule.calls = await self._sweep(started, priority)
                    self._seconds_per_page += 0.3 * ((time.monotonic() - started) / calls - self._seconds_per_page)
            except Exception as error:
                log.exception("lookout.failed")
                self._fail(started, ProviderError(f"the poll failed: {type(error).__name__}"))
            finally:
                self._is_sweeping = False
            self._drop_expired()
            await self._followers.wake()

    async def _sweep(self, started: float, priority: CallPriority) -> int:
        """Read pages until all requests from before `started` are answered, or until those that are left cost less one
        by one than on the other pages. Poll singly what was on none. Return the calls that count for the next interval:
        not those for addresses, and not the first single one, because every machine that ends costs one."""
        incomplete, listed = set[str](), set[str]()
        size, first_size, pages = self._page_size, 0, 0

        async def read(page: int) -> ProviderPage[RemoteInstance]:
            nonlocal pages
            pages += 1
            sent, asked_at = time.monotonic(), now()
            response = await self._novita.instances(page=page, page_size=size, priority=priority)
            for remote in response.items:
                lacks_addresses = has_no_addresses(remote)
                self.pages.put(PageEntry(remote, asked_at, lacks_addresses))
                for client in self._followers.see(remote.id, remote.status):
                    if (request := self._requests.get(client)) is not None and request.novita_id == remote.id:
                        request.renew(remote, lacks_addresses=lacks_addresses)
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
        await self._poll_singly(self._waiting_since(started))
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

    async def _poll_singly(self, novita_ids: Iterable[str]) -> None:
        slots = asyncio.Semaphore(CONCURRENT_GETS)

        async def get(novita_id: str) -> None:
            async with slots:
                sent, is_urgent = time.monotonic(), any(each.is_urgent for each in self._open.get(novita_id, ()))
                remote, problem = None, None
                try:
                    priority = CallPriority.END if is_urgent else CallPriority.POLL
                    remote = await self._novita.instance(novita_id, priority=priority)
                except NovitaError as error:
                    problem = error
                self._followers.see(novita_id, None if remote is None else remote.status)
                self._answer(novita_id, remote, problem, before=sent)

        await asyncio.gather(*(get(novita_id) for novita_id in novita_ids))

    def _waiting_since(self, started: float) -> list[str]:
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
        if remote is not None and state_of(remote) is MachineState.UP:
            self._arrivals.arrived(novita_id)
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
        self._arrivals.forget_lost()
        self._followers.forget_old()
        self.pages.forget_old()
