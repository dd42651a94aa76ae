"""A machine is found by its marker however the provider numbers pages, filters names and counts its list."""

from typing import Any

import pytest

from server.enums import InstanceStatus
from server.errors import ProviderError
from server.instances.provider.marker_lookup import MarkerLookup
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.novita.models.base import ProviderPage
from server.simulator.dialect import Dialect, FirstPage, NameFilter, Total
from server.simulator.faults import Fault, FaultKind
from tests.support.accounting import machines_unaccounted
from tests.support.machines import make_machine
from tests.support.world import CREATE, LIST, World

KNOWN, ANOTHER, MISSING = "pl00000000000000aa", "pl00000000000000bb", "pl00000000000000cc"
DIALECTS = {
    "pages from 0": Dialect(first_page=FirstPage.ZERO),
    "pages from 1": Dialect(first_page=FirstPage.ONE),
    "filter by beginning": Dialect(name_filter=NameFilter.PREFIX),
    "filter by whole name": Dialect(name_filter=NameFilter.EXACT),
    "no filter": Dialect(name_filter=NameFilter.IGNORED),
    "total as text": Dialect(total=Total.TEXT),
    "no total": Dialect(total=Total.MISSING),
    "total of the page": Dialect(total=Total.OF_PAGE),
    "small pages": Dialect(max_page_size=2, caps_page_size=True),
    "refused page size": Dialect(max_page_size=30),
    "everything at once": Dialect(
        first_page=FirstPage.ZERO,
        name_filter=NameFilter.PREFIX,
        total=Total.OF_PAGE,
        max_page_size=2,
        caps_page_size=True,
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_lost_response_makes_one_machine_whatever_the_list_is_like(world: World, dialect: str):
    for number in range(3):
        await make_machine(world, f"other-{number}-{KNOWN[:-1]}{number}")
    world.simulator.world.set_dialect(DIALECTS[dialect])
    accepted = await world.create("lost")
    world.faults(Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1))
    await world.work_once()
    await world.age_attempts()  # a look that misses the machine would end the attempt as ABSENT

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert world.made("lost") == 1
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]
    assert await machines_unaccounted(world) == []


async def test_a_filter_that_was_proved_says_absent_without_the_whole_list(world: World):
    for marker in (KNOWN, ANOTHER):
        await make_machine(world, f"known-{marker}")
    lookup = MarkerLookup(world.novita)

    assert await lookup.find(MISSING) is None
    calls = world.calls(LIST)
    assert await lookup.find(MISSING) is None

    assert world.calls(LIST) - calls == 2  # filtered: pages 1 and 0
    found = await lookup.find(ANOTHER)
    assert found is not None
    assert found.name == f"known-{ANOTHER}"


async def test_without_a_machine_to_prove_it_on_the_filter_is_not_believed(world: World):
    lookup = MarkerLookup(world.novita)
    world.simulator.world.set_dialect(Dialect(name_filter=NameFilter.EXACT))
    assert await lookup.find(MISSING) is None

    await make_machine(world, f"late-{MISSING}")

    found = await lookup.find(MISSING)
    assert found is not None
    assert found.name == f"late-{MISSING}"


async def test_a_machine_with_a_similar_name_is_not_taken_for_the_one(world: World):
    await make_machine(world, f"copy-of-{KNOWN}-2")
    await make_machine(world, f"x{KNOWN}")

    assert await MarkerLookup(world.novita).find(KNOWN) is None


class FirstPageOnly(NovitaClient):
    """As if every page were the first."""

    async def instances(self, **options: Any) -> ProviderPage[RemoteInstance]:
        return await super().instances(**{**options, "page": 1, "page_size": 2})


async def test_a_list_that_lacks_machines_says_nothing_about_absence(world: World):
    for number in range(5):
        await make_machine(world, f"many-{number}")
    world.novita.__class__ = FirstPageOnly

    with pytest.raises(ProviderError, match="2 of the 5 instances"):
        await MarkerLookup(world.novita).find(MISSING)
