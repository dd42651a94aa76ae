"""What a request comes to: its template, the regions in their order, and what each of them offers or refuses."""

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from server.catalog.catalog import Catalog
from server.errors import Invalid, NoCapacity, Problem, ProviderNotFound, Refused
from server.guard import Inside
from server.instances.drafts import MAX_COMMAND, MAX_ENV, MAX_IMAGE, CreateDraft, Port, is_possible_port
from server.instances.placement import Candidate, Refusal, Wish, judge, warm
from server.novita.wire import Template, find_cluster

DEFAULT_ROOTFS_GB = 60
TEMPLATE_PATH = ("input", "templateId")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server decides where the caller is silent."""

    regions: tuple[str, ...]
    estimated_ready_time: timedelta
    inside: Inside = Inside.OFF


@dataclass(frozen=True, slots=True)
class Choice:
    """`judged` has a line for each region and way to pay, in the order in which they would be tried."""

    template: Template | None
    wish: Wish
    judged: tuple[Candidate | Refusal, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(each for each in self.judged if isinstance(each, Refusal))

    @property
    def best(self) -> Candidate | None:
        return next((each for each in self.judged if isinstance(each, Candidate)), None)


async def choose(catalog: Catalog, draft: CreateDraft, *, defaults: Defaults) -> Choice:
    """Look everything up side by side. Raises Invalid with all that is wrong with the template and the regions."""
    regions = region_order(draft, defaults)
    steps = (
        _template(catalog, draft.template_id),
        _known_regions(catalog, draft),
        warm(catalog, regions, draft.billing),
    )
    if catalog.is_at_hand(template_id=draft.template_id):
        looked_up = [await _outcome(step) for step in steps]
    else:
        looked_up = await asyncio.gather(*steps, return_exceptions=True)
    failures = [each for each in looked_up if isinstance(each, BaseException)]
    problems = [problem for each in failures if isinstance(each, Invalid) for problem in each.problems]
    if problems:
        raise Invalid(problems)
    if failures:
        raise failures[0]
    template = looked_up[0] if isinstance(looked_up[0], Template) else None
    wish = Wish(
        product_name=draft.product_name,
        gpu_count=draft.gpu_count,
        rootfs_size_gb=_rootfs(draft, template),
        billing=draft.billing,
        max_hourly_price_e5=draft.max_hourly_price_e5,
        regions=regions,
    )
    return Choice(template, wish, await judge(catalog, wish))


async def _outcome(step: Awaitable[Template | None]) -> Template | Exception | None:
    try:
        return await step
    except Exception as error:  # noqa: BLE001 - it is raised further down, or told beside the others
        return error


def refuse_hopeless(choice: Choice) -> None:
    """Refuse now what no region could serve now. Stock moves, so the worker looks again."""
    if choice.best is not None:
        return
    wish = choice.wish
    codes = {refusal.code for refusal in choice.refusals}
    if codes == {"INVALID_REGION"}:
        raise Refused("INVALID_REGION", f"The provider knows none of {', '.join(wish.regions)}.", ("input", "region"))
    codes -= {"PRODUCT_NOT_FOUND", "INVALID_REGION"}
    if not codes:
        message = f"No region offers {wish.product_name}."
        raise Refused("PRODUCT_NOT_FOUND", message, ("input", "productName"))
    if codes == {"INVALID_ROOTFS_SIZE"}:
        message = f"{wish.product_name} takes no root disk of {wish.rootfs_size_gb} GB in any of these regions."
        raise Refused("INVALID_ROOTFS_SIZE", message, ("input", "rootfsSizeGb"))
    if codes == {"PRICE_ABOVE_MAX"}:
        raise NoCapacity("PRICE_ABOVE_MAX", "Every offer costs more than you allow.", choice.refusals)
    raise NoCapacity("NO_OPTIMAL_PRODUCT_ANY_REGION", "No region has a fitting product free now.", choice.refusals)


def region_order(draft: CreateDraft, defaults: Defaults) -> tuple[str, ...]:
    """The caller's own first, then the caller's order or else the server's."""
    order = [draft.region] if draft.region is not None else []
    order.extend(draft.regions or defaults.regions)
    return tuple(dict.fromkeys(region.strip() for region in order))


def template_problems(template: Template) -> Iterator[str]:
    """What is wrong with a template, field by field. It is written by hand at the provider, and may hold anything."""
    if not template.image.strip():
        yield "image: it is empty"
    elif len(template.image) > MAX_IMAGE:
        yield f"image: it is longer than {MAX_IMAGE} characters"
    wrong = [*template.problems, *(f"{each.port}/{each.type} is not possible" for each in _impossible(template))]
    numbers = [port.port for port in template.ports]
    wrong += [f"{number} is named twice" for number in sorted(set(numbers)) if numbers.count(number) > 1]
    if wrong:
        yield f"ports: {', '.join(wrong[:5])}"
    if template.start_command is not None and len(template.start_command) > MAX_COMMAND:
        yield f"startCommand: it is longer than {MAX_COMMAND} characters"
    if len(template.envs) > MAX_ENV:
        yield f"envs: there are more than {MAX_ENV}"


def _impossible(template: Template) -> list[Port]:
    ports = [Port(port.port, port.type) for port in template.ports]
    return [port for port in ports if not is_possible_port(port)]


async def _template(catalog: Catalog, template_id: str | None) -> Template | None:
    """The template, fit to be run."""
    if template_id is None:
        return None
    try:
        template = await catalog.template(template_id)
    except ProviderNotFound:
        raise Invalid([Problem("TEMPLATE_NOT_FOUND", f"There is no template {template_id}.", TEMPLATE_PATH)]) from None
    problems = [
        Problem("TEMPLATE_INVALID", f"Template {template_id}, {problem}.", TEMPLATE_PATH)
        for problem in template_problems(template)
    ]
    if problems:
        raise Invalid(problems)
    return template


async def _known_regions(catalog: Catalog, draft: CreateDraft) -> None:
    """Only those that the caller named: our own list may name regions that the provider has closed."""
    named = [(("input", "region"), draft.region)] if draft.region is not None else []
    named += [(("input", "regions", str(index)), region) for index, region in enumerate(draft.regions)]
    if not named:
        return
    clusters = await catalog.regions()
    problems = [
        Problem("INVALID_REGION", f"The provider has no region {region}.", path)
        for path, region in named
        if find_cluster(clusters, region) is None
    ]
    if problems:
        raise Invalid(problems)


def _rootfs(draft: CreateDraft, template: Template | None) -> int:
    return draft.rootfs_size_gb or max(DEFAULT_ROOTFS_GB, (template.rootfs_gb or 0) if template else 0)
