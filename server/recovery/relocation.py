"""Where the new machine of an instance may be: its regions, but last where its machine was reclaimed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from server.catalog.catalog import Catalog
from server.clock import now
from server.db.tables import Instance, Operation
from server.enums import Billing, RecoveryBilling, StartStep
from server.instances.placement import Candidate, Placement, RegionRefusal, Requirements, place, requirements_of
from server.instances.recovery.spec import Recovery
from server.novita.models import find_cluster

# A region that has just reclaimed a machine is likely to reclaim the next one.
AVOIDED_FOR = timedelta(hours=1)
TOKEN_LIMIT = "TOKEN_LIMIT_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a new machine may be. `regions` None: in those of the instance; `within` None: the token allows all.

    `highest_price_e5` is what was admitted: a candidate that costs more is refused.
    """

    regions: Sequence[str] | None = None
    on_demand_after: bool = False
    within: Sequence[str] | None = None
    highest_price_e5: int | None = None

    @classmethod
    def of(cls, operation: Operation, *, within: Sequence[str] | None) -> "Wanted":
        """As it was accepted."""
        asked = operation.wanted
        return cls(asked.get("regions"), bool(asked.get("on_demand_after")), within, operation.reserved_price_e5)

    @classmethod
    def by_recovery(cls, recovery: Recovery, *, within: Sequence[str] | None) -> "Wanted":
        return cls(recovery.regions, recovery.billing is RecoveryBilling.ON_DEMAND_AFTER, within)


def needed(instance: Instance, wanted: Wanted) -> Requirements:
    """What a new machine has to fulfil. Volumes can be mounted in their region only."""
    regions, requirements = wanted.regions, requirements_of(instance)
    if instance.volumes and instance.region is not None:
        regions = [instance.region]
    return replace(requirements, regions=tuple(regions or requirements.regions))


def needed_at_last(instance: Instance, wanted: Wanted) -> Requirements:
    """The same, with every billing mode that it may have in the end."""
    requirements = needed(instance, wanted)
    if wanted.on_demand_after and requirements.billing is Billing.SPOT:
        return replace(requirements, billing=Billing.SPOT_THEN_ON_DEMAND)
    return requirements


async def find_places(catalog: Catalog, instance: Instance, wanted: Wanted) -> Placement:
    """The candidates in their order."""
    requirements = needed(instance, wanted)
    prices = (requirements.max_hourly_price_e5, wanted.highest_price_e5)
    highest = min((each for each in prices if each is not None), default=None)
    requirements = replace(requirements, max_hourly_price_e5=highest)
    found = await place(catalog, requirements)
    if wanted.on_demand_after and requirements.billing is Billing.SPOT:
        later = await place(catalog, replace(requirements, billing=Billing.ON_DEMAND))
        found = replace(found, evaluated=(*found.evaluated, *later.evaluated))
    avoided = _avoided(instance)
    evaluated = sorted(await _within(catalog, found, wanted.within), key=lambda each: each.region == avoided)  # stable
    return replace(found, evaluated=tuple(evaluated))


async def highest_price(catalog: Catalog, instance: Instance, steps: Sequence[StartStep], wanted: Wanted) -> int:
    """What a start by these steps costs per hour at most: its machine, or the most expensive candidate for another."""
    prices = [instance.price_per_hour_e5 or 0]
    if StartStep.RELOCATE in steps:
        places = await find_places(catalog, instance, wanted)
        prices += [each.price_per_hour_e5 for each in places.candidates]
    return max(prices)


async def _within(
    catalog: Catalog, found: Placement, allowed: Sequence[str] | None
) -> Sequence[Candidate | RegionRefusal]:
    """Refuse the regions that are not for the token that pays for the run."""
    if allowed is None:
        return found.evaluated
    clusters = await catalog.regions()
    codes = {cluster.code for name in allowed if (cluster := find_cluster(clusters, name)) is not None}
    return [
        each
        if each.region in codes or isinstance(each, RegionRefusal)
        else RegionRefusal(each.region, each.billing_mode, TOKEN_LIMIT, "The token of the run is not for this region.")
        for each in found.evaluated
    ]


def _avoided(instance: Instance) -> str | None:
    at = instance.spot_reclaim_at
    return instance.region if at is not None and now() - at < AVOIDED_FOR else None
