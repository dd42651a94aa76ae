"""Where the new machine of an instance may be: its regions, but last where its machine was reclaimed."""

from dataclasses import replace
from datetime import timedelta

from server.catalog.catalog import Catalog
from server.clock import now
from server.db.tables import Instance
from server.enums import Billing
from server.instances.placement import Placement, Requirements, place

# A region that has just reclaimed a machine is likely to reclaim the next one.
AVOIDED_FOR = timedelta(hours=1)


async def find_places(
    catalog: Catalog,
    instance: Instance,
    requirements: Requirements,
    *,
    regions: list[str] | None,
    on_demand_after: bool,
) -> Placement:
    """The candidates in their order. Volumes can be mounted in their region only."""
    if instance.volumes and instance.region is not None:
        regions = [instance.region]
    requirements = replace(requirements, regions=tuple(regions or requirements.regions))
    found = await place(catalog, requirements)
    if on_demand_after and requirements.billing is Billing.SPOT:
        later = await place(catalog, replace(requirements, billing=Billing.ON_DEMAND))
        found = replace(found, evaluated=(*found.evaluated, *later.evaluated))
    avoided = _avoided(instance)
    evaluated = sorted(found.evaluated, key=lambda each: each.region == avoided)  # stable
    return replace(found, evaluated=tuple(evaluated))


def _avoided(instance: Instance) -> str | None:
    at = instance.spot_reclaim_at
    return instance.region if at is not None and now() - at < AVOIDED_FOR else None
