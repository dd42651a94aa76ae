"""What is concluded from cached lists holds until one of them changes."""

from datetime import timedelta

from server.cache.dated import DatedCache
from server.cache.registry import Caches
from server.catalog.conclusions import Conclusions
from server.enums import Billing
from server.instances.placement import Requirements, place
from tests.support.world import RTX, SINGAPORE, World

MINUTE = timedelta(minutes=1)


def cache(ttl: timedelta = MINUTE) -> DatedCache[str]:
    return Caches().dated("prices", str, ttl=ttl, stale_for=timedelta(0), max_size=1)


async def load() -> str:
    return "dear"


async def test_a_conclusion_holds_until_a_list_changes():
    prices = cache()
    conclusions = Conclusions(prices, ttl=MINUTE)
    await prices.get("GPU", load)
    conclusions.put("which", "none", version=conclusions.version)

    assert conclusions.get("which") == "none"
    assert conclusions.get("another") is None
    await prices.change("GPU", lambda value: f"{value}er")
    assert conclusions.get("which") is None
    conclusions.put("which", "none", version=conclusions.version)
    await prices.get("another GPU", load)  # takes the place of the first: there is room for one
    assert conclusions.get("which") is None
    conclusions.put("which", "none", version=conclusions.version)
    await prices.clear()
    assert conclusions.get("which") is None


async def test_what_was_read_before_a_change_is_not_kept():
    prices = cache()
    conclusions = Conclusions(prices, ttl=MINUTE)
    version = conclusions.version
    await prices.get("GPU", load)

    conclusions.put("which", "all", version=version)

    assert conclusions.get("which") is None


async def test_lists_that_are_never_kept_lead_to_no_conclusion():
    conclusions = Conclusions(cache(timedelta(0)), ttl=timedelta(0))

    conclusions.put("which", "none", version=conclusions.version)

    assert conclusions.get("which") is None


async def test_a_placement_is_evaluated_once_and_again_when_a_product_is_forgotten(world: World):
    wish = Requirements(RTX, 1, 60, Billing.SPOT, None, (SINGAPORE,))
    await place(world.catalog, wish)  # reads the lists
    first = await place(world.catalog, wish)
    assert await place(world.catalog, wish) is first

    await world.catalog.forget_product(first.candidates[0].cluster_id, "spot", "26", gpu_count=1)

    again = await place(world.catalog, wish)
    assert again is not first
    assert again.candidates == first.candidates
