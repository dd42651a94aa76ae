"""Resolves a create request: its template, the order of regions, and a candidate or a refusal for each."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.encryption import PLAIN, Cipher
from server.enums import PlacementOrder
from server.errors import Invalid, NovitaError, Problem, ProviderNotFound
from server.instances.drafts import (
    ANY_REGION,
    MAX_COMMAND,
    MAX_IMAGE,
    MAX_PORTS,
    CreateDraft,
    Port,
    is_possible_port,
)
from server.instances.env import MAX_ENV
from server.instances.limits.of_token import other_region, refuse_product
from server.instances.placement import Candidate, Placement, Requirements, place, prefetch_products
from server.novita.models import Cluster, Template, find_cluster
from server.spend.refusals import TokenLimitExceeded
from server.ssrf import PrivateAddresses
from server.volumes.attach import MountedVolume

DEFAULT_ROOTFS_GB = 60
TEMPLATE_PATH = ("input", "templateId")
BY_PRICE = PlacementOrder.PRICE


@dataclass(frozen=True, slots=True)
class Defaults:
    """The server's settings for what a request leaves open."""

    regions: tuple[str, ...]
    estimated_ready_time: timedelta
    private_addresses: PrivateAddresses = PrivateAddresses.OFF
    cipher: Cipher = PLAIN
    quote_key: bytes | None = None
    max_duration: timedelta | None = None  # of instances whose request and project name none


@dataclass(frozen=True, slots=True)
class Quote:
    """The template, what a product has to fulfil, and every region and billing mode in the order of attempts."""

    template: Template | None
    requirements: Requirements
    placement: Placement

    @property
    def best(self) -> Candidate | None:
        return next(iter(self.placement.candidates), None)


async def quote_draft(
    catalog: Catalog, draft: CreateDraft, *, defaults: Defaults, volumes: Sequence[MountedVolume] = ()
) -> Quote:
    """Run all lookups concurrently. Raises Invalid with every problem of the template and the regions."""
    steps = (
        _template(catalog, draft.template_id),
        _known_regions(catalog, draft),
        _network_region(catalog, draft),
        _volume_region(catalog, draft, volumes),
        known_auth(catalog, draft.registry_auth_id, ("input", "registryAuthId")),
    )
    if catalog.is_cached(template_id=draft.template_id):
        looked_up = [await _outcome(step) for step in steps]
    else:
        looked_up = await asyncio.gather(*steps, _prefetch(catalog, draft, defaults), return_exceptions=True)
    failures = [each for each in looked_up if isinstance(each, BaseException)]
    problems = [problem for each in failures if isinstance(each, Invalid) for problem in each.problems]
    if problems:
        raise Invalid(problems)
    if failures:
        raise failures[0]
    template = looked_up[0] if isinstance(looked_up[0], Template) else None
    if template is not None and draft.registry_auth_id is None:
        await known_auth(catalog, template.image_auth_id, TEMPLATE_PATH)
    network_region, volume_region = looked_up[2], looked_up[3]
    if isinstance(network_region, str) and isinstance(volume_region, str) and network_region != volume_region:
        message = f"The volumes are in {volume_region}, the network in {network_region}."
        raise Invalid([Problem("VOLUME_REGION_MISMATCH", message, ("input", "volumes"))])
    for region in (network_region, volume_region):
        if isinstance(region, str):
            draft = replace(draft, region=None, regions=(region,))
    requirements = await _requirements(catalog, draft, defaults, template)
    return Quote(template, requirements, await place(catalog, requirements))


async def limited_draft(catalog: Catalog, draft: CreateDraft, defaults: Sequence[str], *, by: Caller) -> CreateDraft:
    """The draft within the regions of the token; raises TokenLimitExceeded if it names another product or region."""
    refuse_product(by, draft.product_name)
    if by.limits.regions is None:
        return draft
    clusters = await catalog.regions()
    allowed = _codes(clusters, by.limits.regions)
    named = [draft.region] if draft.region is not None else []
    named += [] if draft.is_any_region else draft.regions
    for region in named:
        cluster = find_cluster(clusters, region)
        if cluster is not None and cluster.code not in allowed:
            raise other_region(region, "region" if region == draft.region else "regions")
    if draft.regions and not draft.is_any_region:
        return draft
    # "Any" region, and the server's own order, are of those that the token allows.
    preferred = [] if draft.is_any_region else _codes(clusters, [each for each in defaults if each != ANY_REGION])
    within = [code for code in preferred if code in allowed] or allowed
    if not within:
        raise TokenLimitExceeded("regions", "The provider has none of the regions of this token.", ("input", "regions"))
    is_any = not preferred and draft.region is None
    return replace(draft, regions=tuple(within), placement=draft.placement or (BY_PRICE if is_any else None))


async def _outcome(step: Awaitable[Template | str | None]) -> Template | str | Exception | None:
    try:
        return await step
    except Exception as error:  # noqa: BLE001 - `quote_draft` raises it, alone or with the others
        return error


async def _prefetch(catalog: Catalog, draft: CreateDraft, defaults: Defaults) -> None:
    await prefetch_products(catalog, await _requirements(catalog, draft, defaults, None))


async def _requirements(
    catalog: Catalog, draft: CreateDraft, defaults: Defaults, template: Template | None
) -> Requirements:
    named, is_any = region_order(draft, defaults)
    regions = named
    if is_any:
        clusters = await catalog.regions()
        first = [cluster.code for region in named if (cluster := find_cluster(clusters, region)) is not None]
        regions = tuple(dict.fromkeys([*first, *(cluster.code for cluster in clusters)]))
    return Requirements(
        product_name=draft.product_name,
        gpu_count=draft.gpus,
        rootfs_size_gb=_rootfs(draft, template),
        billing=draft.billing,
        max_hourly_price_e5=draft.max_hourly_price_e5,
        regions=regions,
        order=draft.placement or (PlacementOrder.REGION_ORDER if named else PlacementOrder.PRICE),
    )


def region_order(draft: CreateDraft, defaults: Defaults) -> tuple[tuple[str, ...], bool]:
    """The requested region first, then the requested order, or else the server's; and whether any other may follow."""
    order = [draft.region] if draft.region is not None else []
    rest = draft.regions or defaults.regions
    is_any = not rest or draft.is_any_region
    if not is_any:
        order.extend(rest)
    return tuple(dict.fromkeys(region.strip() for region in order)), is_any


def template_problems(template: Template) -> Iterator[str]:
    """The problems of a template, by field. Users write templates at the provider by hand: they may hold anything."""
    if not template.image.strip():
        yield "image: it is empty"
    elif len(template.image) > MAX_IMAGE:
        yield f"image: it is longer than {MAX_IMAGE} characters"
    wrong = [*template.problems, *(f"{each.port}/{each.type} is not a valid port" for each in _impossible(template))]
    numbers = [port.port for port in template.ports]
    wrong += [f"{number} is requested twice" for number in sorted(set(numbers)) if numbers.count(number) > 1]
    if wrong:
        yield f"ports: {', '.join(wrong[:5])}"
    count = len({*numbers, *(tool.port for tool in template.tools)})
    if count > MAX_PORTS:
        yield f"tools: with the ports they are {count}, more than {MAX_PORTS}"
    if template.start_command is not None and len(template.start_command) > MAX_COMMAND:
        yield f"startCommand: it is longer than {MAX_COMMAND} characters"
    if len(template.envs) > MAX_ENV:
        yield f"envs: there are more than {MAX_ENV}"


def _impossible(template: Template) -> list[Port]:
    ports = [Port(port.port, port.type) for port in template.ports]
    return [port for port in ports if not is_possible_port(port)]


async def _template(catalog: Catalog, template_id: str | None) -> Template | None:
    """The template; raises Invalid if it can't be run."""
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
    """Checks only requested regions: the server's own list may have regions that the provider has closed."""
    requested = [(("input", "region"), draft.region)] if draft.region is not None else []
    if not draft.is_any_region:
        requested += [(("input", "regions", str(index)), region) for index, region in enumerate(draft.regions)]
    if not requested:
        return
    clusters = await catalog.regions()
    problems = [
        Problem("INVALID_REGION", f"The provider has no region {region}.", path)
        for path, region in requested
        if find_cluster(clusters, region) is None
    ]
    if problems:
        raise Invalid(problems)


async def known_auth(catalog: Catalog, auth_id: str | None, path: tuple[str, ...]) -> None:
    """With an unknown credential the provider would create a machine, bill it, and fail to pull its image."""
    if auth_id is None:
        return
    try:
        is_known = await catalog.has_registry_auth(auth_id)
    except NovitaError:
        return  # not a reason to refuse: the worker checks again before it creates the machine
    if not is_known:
        raise Invalid([Problem("REGISTRY_AUTH_NOT_FOUND", f"There is no registry auth {auth_id}.", path)])


async def _network_region(catalog: Catalog, draft: CreateDraft) -> str | None:
    """The only region whose instances can be in the requested network."""
    if draft.network_id is None:
        return None
    network, clusters = await catalog.network(draft.network_id), await catalog.regions()
    cluster = None if network is None else find_cluster(clusters, network.cluster_id or "")
    if cluster is None:
        message = f"There is no network {draft.network_id}."
        raise Invalid([Problem("NETWORK_NOT_FOUND", message, ("input", "networkId"))])
    if not _is_requested(draft, cluster):
        message = f"The network is in {cluster.code}, which is not among the requested regions."
        raise Invalid([Problem("NETWORK_REGION_MISMATCH", message, ("input", "networkId"))])
    return cluster.code


async def _volume_region(catalog: Catalog, draft: CreateDraft, volumes: Sequence[MountedVolume]) -> str | None:
    """The only region whose instances can have the requested volumes, which are all in one."""
    if not volumes:
        return None
    cluster = find_cluster(await catalog.regions(), volumes[0].region)
    if cluster is None or not cluster.supports_network_storage:
        message = f"{volumes[0].region} does not support volumes now."
        raise Invalid([Problem("VOLUMES_NOT_SUPPORTED", message, ("input", "volumes"))])
    if not _is_requested(draft, cluster):
        message = f"The volumes are in {cluster.code}, which is not among the requested regions."
        raise Invalid([Problem("VOLUME_REGION_MISMATCH", message, ("input", "volumes"))])
    return cluster.code


def _is_requested(draft: CreateDraft, cluster: Cluster) -> bool:
    """Whether the request allows this region."""
    requested = [draft.region] if draft.region is not None else []
    requested += [] if draft.is_any_region else draft.regions
    return not requested or any(find_cluster([cluster], region) is not None for region in requested)


def _rootfs(draft: CreateDraft, template: Template | None) -> int:
    return draft.rootfs_size_gb or max(DEFAULT_ROOTFS_GB, (template.rootfs_gb or 0) if template else 0)


def _codes(clusters: Sequence[Cluster], regions: Sequence[str]) -> list[str]:
    found = [find_cluster(clusters, region) for region in regions]
    return list(dict.fromkeys(cluster.code for cluster in found if cluster is not None))
