"""A value that is derived from cached lists is kept until one of them changes."""

from datetime import timedelta

from server.cache.dated import DatedCache
from server.cache.registry import Caches
from server.catalog.derived import DerivedValues
from server.enums import Billing
from server.instances.placement import Requirements, place
from tests.support.world import RTX, SINGAPORE, World

MINUTE = timedelta(minutes=1)


def cache(ttl: timedelta = MINUTE) -> DatedCache[str]:
    return Caches().dated("prices", str, ttl=ttl, stale_for=timedelta(0), max_size=1)


async def load() -> str:
    return "dear"


async def test_a_derived_value_is_kept_until_a_list_changes():
    prices = cache()
    derived = DerivedValues(prices, ttl=MINUTE)
    await prices.get("GPU", load)
    derived.put("which", "none", version=derived.version)

    assert derived.get("which") == "none"
    assert derived.get("another") is None
    await prices.change("GPU", lambda value: f"{value}er")
    assert derived.get("which") is None
    derived.put("which", "none", version=derived.version)
    await prices.get("another GPU", load)  # takes the place of the first: there is room for one
    assert derived.get("which") is None
    derived.put("which", "none", version=derived.version)
    await prices.clear()
    assert derived.get("which") is None


async def test_what_was_read_before_a_change_is_not_kept():
    prices = cache()
    derived = DerivedValues(prices, ttl=MINUTE)
    version = derived.version
    await prices.get("GPU", load)

    derived.put("which", "all", version=version)

    assert derived.get("which") is None


async def test_nothing_is_derived_from_lists_that_are_never_kept():
    derived = DerivedValues(cache(timedelta(0)), ttl=timedelta(0))

    derived.put("which", "none", version=derived.version)

    assert derived.get("which") is None


async def test_a_placement_is_evaluated_once_and_again_when_a_product_is_forgotten(world: World):
    wish = Requirements(RTX, 1, 60, Billing.SPOT, None, (SINGAPORE,))
    await place(world.catalog, wish)  # reads the lists
    first = await place(world.catalog, wish)
    assert await place(world.catalog, wish) is first

    await world.catalog.forget_product(first.candidates[0].cluster_id, "spot", "26", gpu_count=1)

    again = await place(world.catalog, wish)
    assert again is not first
    assert again.candidates == first.candidates
