"""Queries: node, nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated
from uuid import UUID

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.context import Info
from schema.ids import Node
from schema.inputs import Id
from schema.permissions import Requires
from schema.types.instance import Instance
from schema.types.job import Job
from schema.types.operation import Operation
from schema.types.token import Project, Token
from schema.types.webhook import WebhookDelivery
from server.enums import Role
from server.errors import NotFound

MAX_NODES = 100


@strawberry.type
class NodeQueries:
    @strawberry.field(
        description="The object with this id; null if not found or not visible to this token.",
        extensions=[Requires(Role.READER)],
    )
    async def node(self, info: Info, id: Id) -> Node | None:
        return await _load(info, id)

    @strawberry.field(
        description="Nodes by id (1 to 100), in order; null where not found.",
        extensions=[Requires(Role.READER)],
    )
    async def nodes(
        self, info: Info, ids: Annotated[list[strawberry.ID], strawberry.argument(description="Ids, 1 to 100.")]
    ) -> list[Node | None]:
        if not 1 <= len(ids) <= MAX_NODES:
            message = f"`ids` must be 1 to {MAX_NODES}."
            raise GraphQLError(message, extensions={"code": "INVALID_IDS", "retryable": False})
        return list(await asyncio.gather(*(_load(info, id) for id in ids)))


async def _load(info: Info, id: strawberry.ID) -> Node | None:
    kind = id.partition("_")[0]
    try:
        if kind == ids.JOB:
            job = await info.context.loaders.job.load(ids.parse_number(ids.JOB, id))
            return None if job is None else Job.of(job)
        find = LOADERS.get(kind)
        return None if find is None else await find(info, ids.parse(kind, id))
    except NotFound:
        return None


async def _instance(info: Info, id: UUID) -> Node | None:
    row = await info.context.loaders.instance.load(id)
    return None if row is None else Instance.of(row)


async def _operation(info: Info, id: UUID) -> Node | None:
    row = await info.context.loaders.operation.load(id)
    return None if row is None else Operation.of(row)


async def _delivery(info: Info, id: UUID) -> Node | None:
    row = await info.context.loaders.delivery.load(id)
    return None if row is None else WebhookDelivery.of(row)


async def _token(info: Info, id: UUID) -> Node | None:
    """A token of the project, or any token for a server administrator."""
    loaders = info.context.loaders
    row = await (loaders.any_token if await info.context.is_server_admin() else loaders.token).load(id)
    return None if row is None else Token.of(row)


async def _project(info: Info, id: UUID) -> Node | None:
    """The caller's project, or any project for a server administrator."""
    if id != info.context.caller.project_id and not await info.context.is_server_admin():
        return None
    row = await info.context.loaders.project.load(id)
    return None if row is None else Project.of(row)


LOADERS: dict[str, Callable[[Info, UUID], Awaitable[Node | None]]] = {
    ids.INSTANCE: _instance,
    ids.OPERATION: _operation,
    ids.DELIVERY: _delivery,
    ids.TOKEN: _token,
    ids.PROJECT: _project,
}
