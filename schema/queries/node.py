"""Queries: node, nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.context import Info
from schema.ids import Node
from schema.inputs import Id
from schema.permissions import query
from schema.types.account import Network, Prewarm
from schema.types.catalog import Product, RegistryAuthType, Template
from schema.types.event import InstanceEvent, ProjectEvent
from schema.types.instance import Instance
from schema.types.job import Job
from schema.types.market.alert import MarketAlert
from schema.types.operation import Operation
from schema.types.provider_job import ProviderJob
from schema.types.spend.budget import Budget
from schema.types.spend.quota import Quota
from schema.types.token import Project, Token
from schema.types.volume import Volume
from schema.types.webhook import ProjectWebhook, WebhookDelivery
from server.enums import InstanceKind
from server.errors import NotFound

MAX_NODES = 100
PRODUCT_KINDS = {kind.value.lower(): kind for kind in (InstanceKind.GPU, InstanceKind.CPU)}


@strawberry.type
class NodeQueries:
    @query("The object with this id; null if not found or not visible to this token.")
    async def node(self, info: Info, id: Id) -> Node | None:
        return await _load(info, id)

    @query("Nodes by id (1 to 100), in order; null where not found.")
    async def nodes(
        self, info: Info, ids: Annotated[list[strawberry.ID], strawberry.argument(description="Ids, 1 to 100.")]
    ) -> list[Node | None]:
        if not 1 <= len(ids) <= MAX_NODES:
            message = f"`ids` must be 1 to {MAX_NODES}."
            raise GraphQLError(message, extensions={"code": "INVALID_IDS", "retryable": False})
        # An object of the provider may be out of reach: an error in its place, and the others are there.
        found: list[Any] = await asyncio.gather(*(_load(info, id) for id in ids), return_exceptions=True)
        return list(found)


async def _load(info: Info, id: strawberry.ID) -> Node | None:
    find = LOADERS.get(id.partition("_")[0])
    try:
        return None if find is None else await find(info, id)
    except NotFound:
        return None


async def _instance(info: Info, id: str) -> Node | None:
    row = await info.context.loaders.instance.load(ids.parse(ids.INSTANCE, id))
    return None if row is None else Instance.of(row)


async def _operation(info: Info, id: str) -> Node | None:
    row = await info.context.loaders.operation.load(ids.parse(ids.OPERATION, id))
    return None if row is None else Operation.of(row)


async def _delivery(info: Info, id: str) -> Node | None:
    row = await info.context.loaders.delivery.load(ids.parse(ids.DELIVERY, id))
    return None if row is None else WebhookDelivery.of(row)


async def _budget(info: Info, id: str) -> Node | None:
    return await Budget.load(info, id)


async def _quota(info: Info, id: str) -> Node | None:
    return await Quota.load(info, id)


async def _webhook(info: Info, id: str) -> Node | None:
    row = await info.context.loaders.project_webhook.load(ids.parse(ids.WEBHOOK, id))
    return None if row is None else ProjectWebhook.of(row)


async def _token(info: Info, id: str) -> Node | None:
    """A token of the project, or any token for a server administrator."""
    loaders, token_id = info.context.loaders, ids.parse(ids.TOKEN, id)
    row = await (loaders.any_token if await info.context.is_server_admin() else loaders.token).load(token_id)
    return None if row is None else Token.of(row)


async def _project(info: Info, id: str) -> Node | None:
    """The caller's project, or any project for a server administrator."""
    project_id = ids.parse(ids.PROJECT, id)
    if project_id != info.context.caller.project_id and not await info.context.is_server_admin():
        return None
    row = await info.context.loaders.project.load(project_id)
    return None if row is None else Project.of(row)


async def _job(info: Info, id: str) -> Node | None:
    job = await info.context.loaders.job.load(ids.parse_job(info.context.services.seals, id))
    return None if job is None else Job.of(job, info.context.services.seals)


async def _event(info: Info, id: str) -> Node | None:
    found = await info.context.loaders.event.load(ids.parse(ids.EVENT, id))
    if found is None:
        return None
    event, cursor = found
    return (InstanceEvent if event.instance_id is not None else ProjectEvent).of(
        event, cursor=info.context.services.cursors.of_event(cursor)
    )


async def _registry_auth(info: Info, id: str) -> Node | None:
    auth = await info.context.loaders.registry_auth.load(ids.provider_id(ids.REGISTRY_AUTH, id))
    return None if auth is None else RegistryAuthType.of(auth)


async def _product(info: Info, id: str) -> Node | None:
    kind, cluster_id, product_id = [*ids.provider_id(ids.PRODUCT, id).split(":", 2), "", ""][:3]
    if kind not in PRODUCT_KINDS:
        return None
    offer = await info.context.loaders.offer.load((PRODUCT_KINDS[kind], cluster_id, product_id))
    return None if offer is None else Product.of(offer, PRODUCT_KINDS[kind])


LOADERS: dict[str, Callable[[Info, str], Awaitable[Node | None]]] = {
    ids.INSTANCE: _instance,
    ids.OPERATION: _operation,
    ids.DELIVERY: _delivery,
    ids.BUDGET: _budget,
    ids.QUOTA: _quota,
    ids.ALERT: MarketAlert.load,
    ids.WEBHOOK: _webhook,
    ids.TOKEN: _token,
    ids.PROJECT: _project,
    ids.JOB: _job,
    ids.EVENT: _event,
    ids.TEMPLATE: Template.load,
    ids.REGISTRY_AUTH: _registry_auth,
    ids.PRODUCT: _product,
    ids.NETWORK: Network.load,
    ids.PREWARM: Prewarm.load,
    ids.PROVIDER_JOB: ProviderJob.load,
    ids.VOLUME: Volume.load,
}
