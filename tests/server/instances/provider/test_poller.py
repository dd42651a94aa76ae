"""Polling many machines costs list pages, not single calls; polling a few is immediate."""

import asyncio
import time
from collections.abc import Collection, Hashable
from datetime import timedelta
from typing import Any, cast

import pytest

from server.clock import new_id, now
from server.errors import NovitaError, ProviderNotFound, ValidationFailed
from server.instances.provider.few_machines import SINGLE_POLL_BURST, SINGLE_POLLS_MAX
from server.instances.provider.poll_request import FIRST_END_LOOK
from server.instances.provider.poller import InstancePoller, NotYet
from server.instances.provider.sweep_schedule import SLACK
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.novita.transport.concurrency import CallPriority
from server.simulator.faults import Fault, FaultKind
from tests.support.machines import make_running, remove_outside, stop_outside
from tests.support.waiting import until
from tests.support.world import GET, LIST, World

pytestmark = pytest.mark.usefixtures("quick_polls")


async def test_a_few_machines_are_polled_one_by_one_at_once(world: World):
    ids = await make_running(world, SINGLE_POLLS_MAX)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    found = await asyncio.gather(*(poller.poll(each, client=each) for each in ids))

    assert [remote.id for remote in found] == ids
    assert (world.calls(GET), world.calls(LIST)) == (SINGLE_POLLS_MAX, 0)


async def test_concurrent_polls_of_one_machine_share_one_call(world: World):
    (machine,) = await make_running(world, 1)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    found = await asyncio.gather(*(poller.poll_now(machine) for _ in range(50)))

    assert {remote.status for remote in found} == {"running"}
    assert world.calls(GET) == 1


async def test_more_machines_are_polled_by_pages_of_the_list(world: World):
    ids = await make_running(world, 30)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    found = await asyncio.gather(*(_until_seen(poller, each) for each in ids))

    assert [remote.id for remote in found] == ids
    assert (world.calls(LIST), world.calls(GET)) == (1, 0)


@pytest.mark.parametrize(
    ("first_page", "total", "many"),
    [("0", "number", 30), ("0", "number", 130), ("0", "missing", 130), ("1", "missing", 30), ("both", "number", 30)],
)
async def test_pages_may_begin_at_zero_or_one(world: World, first_page: str, total: str, many: int):
    ids = await make_running(world, many)
    world.simulator.world.set_dialect(world.simulator.world.dialect.changed({"first_page": first_page, "total": total}))
    poller = InstancePoller(world.novita, calls_per_minute=0)

    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    assert world.calls(GET) == 0
    before = world.calls(LIST)

    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    assert world.calls(GET) == 0
    assert world.calls(LIST) - before <= 1 + many // 100  # the first page is known now


async def test_a_running_machine_without_an_address_in_the_list_is_polled_once_more(world: World):
    ids = await make_running(world, 10, http=False)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    await asyncio.gather(*(_until_seen(poller, each) for each in ids))

    assert (world.calls(LIST), world.calls(GET)) == (1, 10)


async def test_no_caller_blocks_while_many_machines_are_polled(world: World):
    ids = await make_running(world, 20)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    outcomes = await asyncio.gather(*(poller.poll(each, client=each) for each in ids), return_exceptions=True)

    postponed = [outcome for outcome in outcomes if isinstance(outcome, NotYet)]
    assert len(postponed) >= len(ids) - SINGLE_POLLS_MAX  # the first ones could not know that so many would come
    await poller.close()


@pytest.mark.parametrize(
    ("moving", "usual", "is_sooner"), [(3, 3.0, True), (4, 3.0, False), (3, 60.0, False), (3, -4.0, False)],
    ids=["small", "large", "expected later", "overdue"],
)  # fmt: skip
async def test_a_page_is_read_when_a_machine_of_a_small_project_is_expected(
    world: World, moving: int, usual: float, is_sooner: bool
):
    ids = await make_running(world, 12)
    poller = InstancePoller(world.novita, calls_per_minute=100)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    project = new_id()
    for each in ids[:moving]:
        with pytest.raises(NotYet):
            await poller.poll(each, client=each, project_id=project, kind="start")
    waits: list[float] = []
    for seconds in (None, usual):
        if seconds is not None:
            poller._arrivals._usual["start"] = seconds
        with pytest.raises(NotYet) as postponed:
            await poller.poll(ids[0], client=ids[0], project_id=project, kind="start")
        waits.append(postponed.value.after.total_seconds())

    assert (waits[1] < waits[0] - SLACK) is is_sooner
    await poller.close()


async def test_how_long_machines_take_is_learned_from_the_fastest(world: World):
    (machine,) = await make_running(world, 1)
    poller = InstancePoller(world.novita, calls_per_minute=100)
    await poller.poll(machine, client="one", kind="start")
    learned = poller._arrivals._usual["start"]
    poller._arrivals._began[machine] = ("start", time.monotonic() - 100)

    await poller.poll(machine, client="two", kind="start")

    assert learned <= poller._arrivals._usual["start"] <= learned + 11  # a tenth of what is more
    assert poller._arrivals.expected_at(machine) is None  # it has arrived
    await poller.close()


async def test_pages_come_sooner_while_calls_are_left_over(world: World):
    ids = await make_running(world, 12)
    waits: list[float] = []
    for is_spare in (False, True):
        poller = InstancePoller(cast("NovitaClient", Spare(world, is_spare=is_spare)), calls_per_minute=100)
        await asyncio.gather(*(_until_seen(poller, each) for each in ids))
        with pytest.raises(NotYet) as postponed:
            await poller.poll(ids[0], client="later")
        waits.append(postponed.value.after.total_seconds())
        await poller.close()

    assert waits[1] < waits[0] / 2


async def test_all_pages_are_read_not_only_the_first(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.instances.provider.poller.PAGE_SIZE", 4)
    ids = await make_running(world, 10)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    found = await asyncio.gather(*(_until_seen(poller, each) for each in ids))

    assert {remote.id for remote in found} == set(ids)
    assert world.calls(LIST) == 3


async def test_one_that_is_on_no_page_is_asked_for_by_id_before_it_is_called_gone(world: World):
    ids = await make_running(world, 8)
    world.faults(Fault(FaultKind.LIST_LAG, seconds=60))
    hidden = await make_running(world, 1)
    poller = InstancePoller(world.novita, calls_per_minute=0)

    found = await asyncio.gather(
        *(_until_seen(poller, each) for each in [*ids, *hidden, "0123456789abcdef"]), return_exceptions=True
    )

    assert isinstance(found[8], RemoteInstance)
    assert isinstance(found[9], ProviderNotFound)


async def test_a_provider_error_is_raised_to_every_caller(world: World):
    ids = await make_running(world, 8)
    world.faults(Fault(FaultKind.ERROR, routes=(LIST, GET)))
    poller = InstancePoller(world.novita, calls_per_minute=0)

    found = await asyncio.gather(*(_until_seen(poller, each) for each in ids), return_exceptions=True)

    assert all(isinstance(each, NovitaError) for each in found)
    world.faults()
    assert (await poller.poll_now(ids[0])).id == ids[0]


async def test_an_answer_is_not_older_than_the_question(world: World):
    (machine,) = await make_running(world, 1)
    poller = InstancePoller(world.novita, calls_per_minute=0)
    world.faults(Fault(FaultKind.LATENCY, routes=(GET,), seconds=0.2, times=1))
    first = asyncio.create_task(poller.poll_now(machine))
    await until(lambda: world.calls(GET) == 1)

    second = asyncio.create_task(poller.poll_now(machine))  # the call under way may have been answered before this
    await asyncio.gather(first, second)

    assert world.calls(GET) == 2


async def test_polling_leaves_most_of_the_rate_limit_to_users(world: World):
    ids = await make_running(world, 12)
    poller = InstancePoller(world.novita, calls_per_minute=100)
    before = world.calls()

    async def poll(novita_id: str) -> None:
        while True:
            await _until_seen(poller, novita_id)

    began = time.monotonic()
    polling = [asyncio.create_task(poll(each)) for each in ids]
    await asyncio.sleep(1.5)
    for task in polling:
        task.cancel()
    await asyncio.gather(*polling, return_exceptions=True)
    await poller.close()

    # A page every 1.2 s is half of 100 a minute, and single polls: a burst, and one every 1.2 s. One by one it would
    # have been hundreds.
    took = time.monotonic() - began
    assert 1 <= world.calls() - before <= 1 + SINGLE_POLL_BURST + 2 * took / 1.2


async def _until_seen(poller: InstancePoller, novita_id: str) -> RemoteInstance:
    while True:
        try:
            return await poller.poll(novita_id, client=("test", novita_id))
        except NotYet as postponed:
            await asyncio.sleep(min(postponed.after.total_seconds(), 0.05))


async def test_clients_with_news_are_woken_by_a_page_that_came_before_their_time(world: World):
    ids = await make_running(world, 12)
    woken: list[set[Any]] = []

    async def wake(clients: Collection[Hashable]) -> None:
        woken.append(set(clients))

    poller = InstancePoller(world.novita, calls_per_minute=0, wake=wake)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    await until(lambda: poller._task is not None and poller._task.done())
    woken.clear()
    await poller.poll_now(ids[1])
    await until(lambda: poller._task is not None and poller._task.done())
    assert woken == []

    await stop_outside(world, ids[0])
    await poller.poll_now(ids[1])

    await until(lambda: woken == [{("test", ids[0])}])
    await poller.close()


async def test_an_end_is_confirmed_with_the_calls_of_ends_and_its_client_is_woken(world: World):
    ids = await make_running(world, 12)
    woken: list[set[Any]] = []
    asked = list[CallPriority]()

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.novita, name)

        async def instance(self, novita_id: str, *, priority: CallPriority) -> RemoteInstance:
            asked.append(priority)
            return await world.novita.instance(novita_id, priority=priority)

    async def wake(clients: Collection[Hashable]) -> None:
        woken.append(set(clients))

    poller = InstancePoller(cast("NovitaClient", Counted()), calls_per_minute=600, wake=wake)  # no page comes sooner
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    asked.clear()
    pages = world.calls(LIST)
    await remove_outside(world, ids[0])

    with pytest.raises(NotYet):
        await poller.poll(ids[0], client="delete", is_urgent=True, leaves_list=True)

    await until(lambda: {"delete"} <= set[Any]().union(*woken))
    assert (asked, world.calls(LIST) - pages) == ([CallPriority.END], 0)  # no page is read for it
    with pytest.raises(ProviderNotFound):
        await poller.poll(ids[0], client="delete", is_urgent=True, leaves_list=True)
    await poller.close()


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was polled, or shown by a page, stays so, however slow this machine is."""
    monkeypatch.setattr("server.instances.provider.few_machines.MOVING_SECONDS", 3600.0)
    monkeypatch.setattr("server.instances.provider.poll_request.PAGE_TTL", timedelta(hours=1))


@pytest.mark.usefixtures("lasting")
async def test_a_page_shows_an_end_to_its_client_and_is_in_the_place_of_the_next_page(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """A look at the one machine would cost as much, and the next page would be read all the same."""
    monkeypatch.setattr("server.instances.provider.poller.END_PAGE_SOONER", 3600.0)
    ids = await make_running(world, 12)
    priorities = list[CallPriority]()

    class Counted(Spare):
        async def instances(self, *, page: int, page_size: int, priority: CallPriority) -> Any:
            priorities.append(priority)
            return await world.novita.instances(page=page, page_size=page_size, priority=priority)

    poller = InstancePoller(cast("NovitaClient", Counted(world, is_spare=False)), calls_per_minute=1)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    with pytest.raises(NotYet):
        await poller.poll(ids[1], client="another")
    due_at = time.monotonic() + poller._schedule.left
    await stop_outside(world, ids[0])
    before, looks = world.calls(LIST), world.calls(GET)
    priorities.clear()

    with pytest.raises(NotYet):
        await poller.poll(ids[0], client="stop", is_urgent=True)
    await until(lambda: poller._requests["stop"].done.is_set())

    assert (await poller.poll(ids[0], client="stop", is_urgent=True)).status == "exited"
    assert (await poller.poll(ids[1], client="another")).status == "running"  # it was on that page, too
    assert (world.calls(LIST) - before, world.calls(GET) - looks, priorities) == (1, 0, [CallPriority.END])
    assert time.monotonic() + poller._schedule.left > due_at  # the interval begins anew
    await poller.close()


@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize(("soon", "others"), [(3600.0, 0), (0.0, 1)], ids=["no other waits", "the page is not due"])
async def test_an_end_that_no_page_is_due_for_costs_one_look(
    world: World, monkeypatch: pytest.MonkeyPatch, soon: float, others: int
):
    monkeypatch.setattr("server.instances.provider.poller.END_PAGE_SOONER", soon)
    ids = await make_running(world, 12)
    poller = InstancePoller(cast("NovitaClient", Spare(world, is_spare=False)), calls_per_minute=1)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    for each in ids[1 : 1 + others]:
        with pytest.raises(NotYet):
            await poller.poll(each, client=each)
    await stop_outside(world, ids[0])
    before, looks = world.calls(LIST), world.calls(GET)

    with pytest.raises(NotYet):
        await poller.poll(ids[0], client="stop", is_urgent=True)
    await until(lambda: poller._requests["stop"].done.is_set())

    assert (await poller.poll(ids[0], client="stop", is_urgent=True)).status == "exited"
    assert (world.calls(LIST) - before, world.calls(GET) - looks) == (0, 1)
    await poller.close()


async def test_a_result_that_was_not_fetched_is_renewed_by_a_later_page(world: World):
    ids = await make_running(world, 12)
    poller = InstancePoller(world.novita, calls_per_minute=0)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    with pytest.raises(NotYet):
        await poller.poll(ids[0], client="late")
    await until(lambda: poller._requests["late"].done.is_set())

    await stop_outside(world, ids[0])
    await poller.poll_now(ids[1])

    assert (await poller.poll(ids[0], client="late")).status == "exited"
    await poller.close()


async def test_a_machine_that_is_followed_to_its_end_is_read_sooner_but_not_at_once(world: World):
    ids = await make_running(world, 12)
    poller = InstancePoller(world.novita, calls_per_minute=100)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    waits: list[float] = []
    for is_urgent in (False, True):
        with pytest.raises(NotYet) as postponed:
            await poller.poll(ids[0], client=is_urgent, is_urgent=is_urgent)
        waits.append(postponed.value.after.total_seconds())

    assert FIRST_END_LOOK < waits[1] < waits[0] * 2 / 3
    await poller.close()


class Spare:
    """The world's provider, with or without calls that are left over."""

    def __init__(self, world: World, *, is_spare: bool) -> None:
        self._novita = world.novita
        self.has_spare_calls, self.is_short_of_calls = is_spare, not is_spare

    def __getattr__(self, name: str) -> Any:
        return getattr(self._novita, name)


class SmallPages:
    """A provider that makes pages of at most `most`, or refuses to make larger ones."""

    def __init__(self, world: World, most: int, *, refuses: bool) -> None:
        self._novita = world.novita
        self._most = most
        self._refuses = refuses
        self.has_spare_calls = self.is_short_of_calls = False
        self.asked: list[int] = []

    async def instances(self, *, page: int, page_size: int, priority: CallPriority) -> Any:
        self.asked.append(page_size)
        if self._refuses and page_size > self._most:
            raise ValidationFailed("no such page size")
        return await self._novita.instances(page=page, page_size=min(page_size, self._most), priority=priority)

    async def instance(self, novita_id: str, *, priority: CallPriority) -> RemoteInstance:
        return await self._novita.instance(novita_id, priority=priority)


MANY = 60_000  # calls a minute: rounds follow each other at once


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proportions of thousands of machines, with few."""
    monkeypatch.setattr("server.instances.provider.poller.PAGE_SIZE", 4)
    monkeypatch.setattr("server.instances.provider.poller.LARGE_PAGE_SIZE", 16)
    monkeypatch.setattr("server.instances.provider.poller.LARGE_PAGES_FROM", 2)
    monkeypatch.setattr("server.instances.provider.sweep_schedule.INTERVAL_MIN", 0.02)


@pytest.mark.usefixtures("small")
async def test_a_large_fleet_is_read_in_large_pages(world: World):
    ids = await make_running(world, 20)
    poller = InstancePoller(world.novita, calls_per_minute=MANY)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    before = world.calls(LIST)

    found = await asyncio.gather(*(_until_seen(poller, each) for each in ids))

    assert [remote.id for remote in found] == ids
    assert world.calls(LIST) - before == 2  # 16 and 4; with the usual ones it would be 5
    assert world.calls(GET) == 0


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("refuses", [True, False])
async def test_where_pages_can_not_be_that_large_all_are_seen_all_the_same(world: World, refuses: bool):
    ids = await make_running(world, 20)
    novita = SmallPages(world, 5, refuses=refuses)
    poller = InstancePoller(cast("NovitaClient", novita), calls_per_minute=MANY)
    for _ in range(3):
        found = await asyncio.gather(*(_until_seen(poller, each) for each in ids))
        assert [remote.id for remote in found] == ids

    assert novita.asked.count(16) == 1  # tried once, and then known
    assert world.calls(GET) == 0
    await poller.close()


@pytest.mark.usefixtures("small")
async def test_a_machine_of_a_late_page_is_polled_alone_and_the_newest_cost_one_page(world: World):
    ids = await make_running(world, 60)  # four large pages, the newest first
    poller = InstancePoller(world.novita, calls_per_minute=MANY)
    await asyncio.gather(*(_until_seen(poller, each) for each in ids))
    pages = world.calls(LIST)

    await asyncio.gather(*(_until_seen(poller, each) for each in ids[-8:]))
    assert (world.calls(LIST) - pages, world.calls(GET)) == (1, 0)

    wanted = [ids[0], ids[20], *ids[-8:]]
    found = await asyncio.gather(*(_until_seen(poller, each) for each in wanted))
    assert [remote.id for remote in found] == wanted
    assert (world.calls(LIST) - pages, world.calls(GET)) == (2, 2)  # two more pages would not have shown both
    await poller.close()


async def test_a_page_serves_polls_that_come_soon_after_it(world: World):
    ids = await make_running(world, 12)
    poller = InstancePoller(world.novita, calls_per_minute=0)
    began = now()
    await asyncio.gather(*(_until_seen(poller, each) for each in ids[:11]))
    calls = world.calls()

    seen = await poller.poll(ids[11], client="late", newer_than=began)

    assert seen.id == ids[11]
    assert world.calls() == calls
    with pytest.raises(NotYet):  # what was seen before that moment does not do
        await poller.poll(ids[11], client="later", newer_than=now())
    assert (await _until_seen(poller, ids[11])).id == ids[11]
    assert world.calls() == calls + 1  # a page: more than a handful move
