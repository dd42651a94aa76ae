"""Says why no region can serve a request, and where the product is offered instead."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from server.catalog.catalog import Catalog
from server.errors import NoCapacity, Refused
from server.instances.placement import ON_DEMAND, SPOT, RegionRefusal, Requirements
from server.instances.quote import Quote

WORDS = {SPOT: "spot", ON_DEMAND: "on demand"}
SUGGESTIONS = 3


@dataclass(frozen=True, slots=True)
class _Offered:
    """Where a product is offered, by billing mode, and all names that there are."""

    in_stock: dict[str, list[str]]
    out_of_stock: dict[str, list[str]]
    names: Sequence[str]


async def refuse(catalog: Catalog, quote: Quote) -> NoReturn:
    """Refuse a request that no region can serve now. Stock changes, so the worker evaluates again."""
    requirements, refusals = quote.requirements, quote.placement.refusals
    codes = {refusal.code for refusal in refusals}
    if codes == {"INVALID_REGION"}:
        message = f"The provider has none of these regions: {', '.join(requirements.regions)}."
        raise Refused("INVALID_REGION", message, ("input", "region"))
    codes -= {"PRODUCT_NOT_FOUND", "INVALID_REGION"}
    if codes == {"INVALID_ROOTFS_SIZE"}:
        size = requirements.rootfs_size_gb
        message = f"{requirements.product_name} takes no root disk of {size} GB in any of these regions."
        raise Refused("INVALID_ROOTFS_SIZE", message, ("input", "rootfsSizeGb"))
    if codes == {"PRICE_ABOVE_MAX"}:
        raise NoCapacity("PRICE_ABOVE_MAX", "Every offer costs more than maxHourlyPrice.", refusals)
    offered = await _offered(catalog, requirements)
    if not offered.in_stock and not offered.out_of_stock:
        message = (
            f"No region offers {requirements.product_name}.{_suggestion(requirements.product_name, offered.names)}"
        )
        raise Refused("PRODUCT_NOT_FOUND", message, ("input", "productName"))
    message = " ".join(_explanation(requirements, refusals, offered))
    if not codes and offered.in_stock:
        raise Refused("PRODUCT_NOT_FOUND", message, ("input", "regions"))
    raise NoCapacity("NO_OPTIMAL_PRODUCT_ANY_REGION", message, refusals)


async def _offered(catalog: Catalog, requirements: Requirements) -> _Offered:
    clusters = await catalog.regions()
    names: dict[str, None] = {}
    in_stock: dict[str, list[str]] = {}
    out_of_stock: dict[str, list[str]] = {}
    for mode in WORDS:
        listed = [*(await catalog.products(None, mode, gpu_count=requirements.gpu_count)).value]
        names |= dict.fromkeys(product.name for product in listed)
        able = {product.id for product in listed}
        if requirements.gpu_count > 1:
            # The provider may leave out products that never have that many GPUs in one machine.
            listed += [each for each in (await catalog.products(None, mode)).value if each.id not in able]
            names |= dict.fromkeys(product.name for product in listed)
        for product in listed:
            if product.name != requirements.product_name:
                continue
            is_in_stock = product.id in able and product.is_deployable
            regions = product.regions or tuple(cluster.code for cluster in clusters)
            found = (in_stock if is_in_stock else out_of_stock).setdefault(mode, [])
            found.extend(region for region in regions if region not in found)
    return _Offered(in_stock, out_of_stock, tuple(names))


def _explanation(requirements: Requirements, refusals: Sequence[RegionRefusal], offered: _Offered) -> Iterator[str]:
    name = requirements.product_name
    with_count = f" with {requirements.gpu_count} GPUs" if requirements.gpu_count > 1 else ""
    empty = list(dict.fromkeys(each.region for each in refusals if each.code == "OUT_OF_STOCK"))
    if empty or not offered.in_stock:
        places = empty or sorted({region for regions in offered.out_of_stock.values() for region in regions})
        yield f"{name}{with_count} is out of stock in {', '.join(places)}."
    else:
        modes = " or ".join(dict.fromkeys(WORDS[each.billing_mode] for each in refusals))
        places = dict.fromkeys(each.region for each in refusals)
        yield f"{name} is not offered as {modes} in {', '.join(places)}."
    tried = {(each.region, each.billing_mode) for each in refusals}
    elsewhere = {
        mode: [region for region in regions if (region, mode) not in tried]
        for mode, regions in offered.in_stock.items()
    }
    for mode, regions in elsewhere.items():
        if regions:
            yield f"In stock{with_count} {WORDS[mode]}: {', '.join(regions)}."


def _suggestion(name: str, names: Sequence[str]) -> str:
    """Names that are written alike, or that contain what was asked for."""
    by_fold = {each.casefold(): each for each in names}
    wanted = name.strip().casefold()
    near = difflib.get_close_matches(wanted, by_fold, n=SUGGESTIONS, cutoff=0.6)
    near += [each for each in by_fold if wanted in each and each not in near]
    found = [by_fold[each] for each in near[:SUGGESTIONS]]
    return f" Did you mean {' or '.join(found)}?" if found else ""
