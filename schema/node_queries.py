"""Anything by its id."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated
from uuid import UUID

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.arguments import Id
from schema.context import Info
from schema.guards import Requires
from schema.types.instance import Instance
from schema.types.job import Job
from schema.types.node import Node
from schema.types.operation import Operation
from schema.types.token import Project, Token
from schema.types.webhook import WebhookDelivery
from server.errors import NotFound
from server.words import Role

MOST_NODES = 100


@strawberry.type
class NodeQueries:
    @strawberry.field(
        description="Whatever has this id; null when there is nothing, or nothing for you.",
        extensions=[Requires(Role.READER)],
    )
    async def node(self, info: Info, id: Id) -> Node | None:
        return await _found(info, id)

    @strawberry.field(
        description="Whatever has these ids, 1 to 100 of them, in the same order; null for each that there is not.",
        extensions=[Requires(Role.READER)],
    )
    async def nodes(
        self, info: Info, ids: Annotated[list[strawberry.ID], strawberry.argument(description="Their ids, 1 to 100.")]
    ) -> list[Node | None]:
        if not 1 <= len(ids) <= MOST_NODES:
            message = f"`ids` must be 1 to {MOST_NODES}."
            raise GraphQLError(message, extensions={"code": "INVALID_IDS", "retryable": False})
        return list(await asyncio.gather(*(_found(info, id) for id in ids)))


async def _found(info: Info, id: strawberry.ID) -> Node | None:
    kind = id.partition("_")[0]
    try:
        if kind == ids.JOB:
            job = await info.context.loaders.job.load(ids.read_number(ids.JOB, id))
            return None if job is None else Job.of(job)
        find = FINDERS.get(kind)
        return None if find is None else await find(info, ids.read(kind, id))
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
    """One of the project; and any, for those who run the server."""
    loaders = info.context.loaders
    row = await (loaders.any_token if await info.context.runs_the_server() else loaders.token).load(id)
    return None if row is None else Token.of(row)


async def _project(info: Info, id: UUID) -> Node | None:
    """One's own; and any, for those who run the server."""
    if id != info.context.caller.project_id and not await info.context.runs_the_server():
        return None
    row = await info.context.loaders.project.load(id)
    return None if row is None else Project.of(row)


FINDERS: dict[str, Callable[[Info, UUID], Awaitable[Node | None]]] = {
    ids.INSTANCE: _instance,
    ids.OPERATION: _operation,
    ids.DELIVERY: _delivery,
    ids.TOKEN: _token,
    ids.PROJECT: _project,
}
