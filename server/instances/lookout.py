"""Looking at machines on behalf of many: whoever asks at about the same time shares the provider's calls.

A few are looked at one by one, at once. More than that are found in pages of the provider's list, so that calls grow
with pages and not with instances; and the pace is such that looking leaves room for what people wait for.
"""

import asyncio
import random
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from server.clock import now
from server.errors import NovitaError, PilotlightError, ProviderError
from server.instances.observed import Seen, seen
from server.novita.client import NovitaClient
from server.novita.priority import Priority
from server.novita.wire import RemoteInstance

log = structlog.get_logger(__name__)

# So many are looked at one by one and without waiting, as long as that does not go on and on.
HANDFUL = 5
BURST = 10.0
PAGE_SIZE = 100
# Where there are many pages, larger ones are asked for; how large the provider really makes them, it shows.
LARGE_PAGE_SIZE = 1_000
MANY_PAGES = 5
MOST_PAGES = 1_000
# Askers who come within it are answered together.
WINDOW = 0.005
# How long somebody who asks is kept waiting in person before being told to come back.
PATIENCE = 0.5
SHORTEST_GAP = 1.0
# The part of the allowed calls that looking may use, and what is taken for the limit where there is none.
SHARE = 0.5
UNLIMITED = 600
# Who was told to come back comes after this time at the latest; an answer waits longer than that to be fetched.
LONGEST_ABSENCE = 30.0
KEEP = 120.0
GETS_AT_ONCE = 16
# What a page showed of machines that nobody had asked for is good for so long.
FRESH_FOR = timedelta(seconds=15)


class Postponed(PilotlightError):
    """Many are waiting to be looked at; come back after this time, the answer will probably be there."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"look again after {after.total_seconds():.1f} s")
        self.after = after


@dataclass(slots=True)
class Ask:
    """One asker's question and, once it is there, the answer."""

    novita_id: str
    asked_at: float
    done: asyncio.Event = field(default_factory=asyncio.Event)
    found: RemoteInstance | None = None
    error: NovitaError | None = None
    answered_at: float = 0.0

    def answer(self, found: RemoteInstance | None, error: NovitaError | None = None) -> None:
        self.found, self.error = found, error
        self.answered_at = time.monotonic()
        self.done.set()

    def result(self) -> RemoteInstance:
        if self.found is not None:
            return self.found
        raise self.error or ProviderError("nobody looked")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A machine as a page showed it, whoever had asked for the page. `asked_at` is before the call."""

    remote: RemoteInstance
    asked_at: datetime


class Lookout:
    """One per process."""

    def __init__(self, novita: NovitaClient, *, calls_per_minute: int) -> None:
        self._novita = novita
        self._pace = 60 / (SHARE * (calls_per_minute or UNLIMITED))  # seconds per call
        self._asks: dict[Hashable, Ask] = {}
        self._open: dict[str, list[Ask]] = {}
        self._sightings: dict[str, Sighting] = {}
        self._task: asyncio.Task[None] | None = None
        self._pages = 1  # how many the whole list had when it was last read
        self._page_size = PAGE_SIZE
        self._largest_page = LARGE_PAGE_SIZE  # as far as we know
        self._next_round_at = 0.0
        self._is_sweeping = False
        self._page_takes = 60 / calls_per_minute if calls_per_minute else 0.05  # seconds; measured from then on
        self._tokens = BURST  # single looks that may be made without waiting for the next round
        self._refilled_at = time.monotonic()

    async def look(self, novita_id: str, *, asker: Hashable, newer_than: datetime | None = None) -> RemoteInstance:
        """What the provider says of it now. Raises NovitaError, or Postponed where many wait.

        The answer is kept for the same asker, who has to come back for it: a job that would sit and wait takes a place
        from other jobs. With `newer_than`, what a page showed after that moment will do, as long as it is fresh: where
        pages are read all the time for so many, nobody has to come twice.
        """
        ask = self._asks.get(asker)
        if ask is None and newer_than is not None:
            sighting = self._sightings.get(novita_id)
            if sighting is not None and sighting.asked_at > newer_than and sighting.asked_at > now() - FRESH_FOR:
                return sighting.remote
        if ask is None or ask.novita_id != novita_id or _is_old(ask):
            ask = self._asks[asker] = self._register(novita_id)
        if not ask.done.is_set() and self._is_quiet():
            await _wait(ask, PATIENCE)
        if not ask.done.is_set():
            raise Postponed(timedelta(seconds=self._until_answered()))
        del self._asks[asker]
        return ask.result()

    async def see(self, novita_id: str) -> RemoteInstance:
        """The same, for somebody who waits in person."""
        ask = self._register(novita_id)
        await ask.done.wait()
        return ask.result()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _register(self, novita_id: str) -> Ask:
        ask = Ask(novita_id, time.monotonic())
        self._open.setdefault(novita_id, []).append(ask)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="lookout")
        return ask

    def _until_answered(self) -> float:
        """Too early costs one more run of a cheap job, too late makes the answer old."""
        waiting = 0.0 if self._is_sweeping else self._next_round_at - time.monotonic()
        pages = max(1.0, len(self._open) / self._page_size)
        # Spread out: those who were sent away together would otherwise all come back together.
        return min(LONGEST_ABSENCE, max(0.25, waiting) + pages * self._page_takes) * random.uniform(0.75, 1.25)

    def _is_quiet(self) -> bool:
        """Whether those who wait now can be looked at one by one, at once."""
        moment = time.monotonic()
        self._tokens = min(BURST, self._tokens + (moment - self._refilled_at) / self._pace)
        self._refilled_at = moment
        return len(self._open) <= min(HANDFUL, self._tokens)

    async def _run(self) -> None:
        """Rounds, for as long as anybody asks."""
        while self._open:
            await asyncio.sleep(WINDOW)
            is_quiet = self._is_quiet()
            if not is_quiet:
                await asyncio.sleep(max(0.0, self._next_round_at - time.monotonic()))
            begun = time.monotonic()
            many = len(self._open)
            try:
                if is_quiet:
                    self._tokens -= many
                    await self._get(list(self._open), before=begun)
                else:
                    calls = min(many, self._pages)
                    self._next_round_at = begun + max(SHORTEST_GAP, calls * self._pace)
                    self._is_sweeping = True
                    await (self._get(list(self._open), before=begun) if many <= calls else self._sweep(begun))
                    self._page_takes += 0.3 * ((time.monotonic() - begun) / calls - self._page_takes)
            except Exception as error:
                # A bug of ours must not leave anybody waiting for ever.
                log.exception("lookout.failed")
                self._fail(begun, ProviderError(f"the look failed: {type(error).__name__}"))
            finally:
                self._is_sweeping = False
            self._forget_old()

    async def _sweep(self, begun: float) -> None:
        """Page by page until everybody who asked before is answered; who is on no page is looked at alone."""
        bare: list[str] = []
        listed: set[str] = set()
        size = self._page_size
        try:
            for page in range(1, MOST_PAGES + 1):
                sent, asked_at = time.monotonic(), now()
                try:
                    answer = await self._novita.instances(page=page, page_size=size, priority=Priority.POLL)
                except NovitaError as error:
                    if size <= PAGE_SIZE or error.retryable:
                        raise
                    self._largest_page = self._page_size = PAGE_SIZE  # it takes no such question
                    break
                before = len(listed)
                listed.update(remote.id for remote in answer.items)
                for remote in answer.items:
                    is_bare = _lacks_endpoints(remote)
                    if not is_bare:
                        self._sightings[remote.id] = Sighting(remote, asked_at)
                    if remote.id not in self._open:
                        continue
                    if is_bare:
                        bare.append(remote.id)
                    else:
                        self._close(remote.id, remote, None, before=sent)
                if page == 1 and answer.total is not None and len(answer.items) < min(size, answer.total):
                    size = self._largest_page = max(1, len(answer.items))  # it makes none that are larger
                # Nobody knows the largest page that is served, so a short one is the last only if the count agrees.
                is_last = len(answer.items) < size and (answer.total is None or len(listed) >= answer.total)
                if answer.total is not None:
                    self._count_pages(answer.total)
                if is_last or len(listed) == before or not self._anybody_before(begun, without=bare):
                    break
        except NovitaError as error:
            self._fail(begun, error)
            return
        if self._page_size != size and not listed:
            return  # those who wait are found by the next round, with pages of the usual size
        await self._get(self._asked_before(begun), before=begun)

    def _count_pages(self, total: int) -> None:
        is_much = total > MANY_PAGES * PAGE_SIZE
        self._page_size = self._largest_page if is_much else min(PAGE_SIZE, self._largest_page)
        self._pages = max(1, -(-total // self._page_size))

    async def _get(self, novita_ids: Iterable[str], *, before: float) -> None:
        places = asyncio.Semaphore(GETS_AT_ONCE)

        async def get(novita_id: str) -> None:
            async with places:
                sent = time.monotonic()
                try:
                    remote = await self._novita.instance(novita_id, priority=Priority.POLL)
                except NovitaError as error:
                    self._close(novita_id, None, error, before=sent)
                else:
                    self._close(novita_id, remote, None, before=sent)

        await asyncio.gather(*(get(novita_id) for novita_id in novita_ids))

    def _asked_before(self, begun: float, without: Iterable[str] = ()) -> list[str]:
        left_out = set(without)
        return [
            novita_id
            for novita_id, asks in self._open.items()
            if novita_id not in left_out and any(ask.asked_at <= begun for ask in asks)
        ]

    def _anybody_before(self, begun: float, without: Iterable[str]) -> bool:
        left_out = set(without)
        asked = (asks for novita_id, asks in self._open.items() if novita_id not in left_out)
        return any(asks[0].asked_at <= begun for asks in asked)

    def _fail(self, begun: float, error: NovitaError) -> None:
        for novita_id in self._asked_before(begun):
            self._close(novita_id, None, error, before=begun)

    def _close(self, novita_id: str, found: RemoteInstance | None, error: NovitaError | None, *, before: float) -> None:
        """Answer everybody who asked before the call was sent; it says nothing to those who came later."""
        asks = self._open.pop(novita_id, [])
        later = [ask for ask in asks if ask.asked_at > before]
        if later:
            self._open[novita_id] = later
        for ask in asks:
            if ask.asked_at <= before:
                ask.answer(found, error)

    def _forget_old(self) -> None:
        for asker in [asker for asker, ask in self._asks.items() if _is_old(ask)]:
            del self._asks[asker]
        fresh_from = now() - FRESH_FOR
        self._sightings = {id: each for id, each in self._sightings.items() if each.asked_at > fresh_from}


def _is_old(ask: Ask) -> bool:
    return ask.done.is_set() and time.monotonic() - ask.answered_at > KEEP


def _lacks_endpoints(remote: RemoteInstance) -> bool:
    """The documents leave addresses out of list items, so one that runs is looked at once more, alone."""
    return seen(remote) is Seen.UP and not any(endpoint.address for endpoint in remote.endpoints)


async def _wait(ask: Ask, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ask.done.wait()
    except TimeoutError:
        return
