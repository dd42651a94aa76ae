"""What callers can read."""

from typing import Annotated

import strawberry

from schema import ids
from schema.arguments import After, First, Id, Which
from schema.catalog_queries import CatalogQueries
from schema.context import Info
from schema.event_queries import EventQueries
from schema.execution.light import LightInstance
from schema.execution.pages import LightConnection
from schema.filters import InstanceFilter, InstanceOrderBy, OrderDirection
from schema.fleet_queries import FleetQueries
from schema.guards import Requires
from schema.job_queries import JobQueries
from schema.node_queries import NodeQueries
from schema.operation_queries import OperationQueries
from schema.paging import check_first, order_cursor, read_order_cursor
from schema.server_queries import ServerQueries
from schema.ssh_queries import SshQueries
from schema.token_queries import TokenQueries
from schema.types.connection import InstanceConnection, InstanceEdge
from schema.types.instance import Instance
from schema.types.page import PageInfo
from schema.webhook_queries import WebhookQueries
from server.db import tables
from server.errors import NotFound
from server.instances import light, reads
from server.instances.drafts import name_problems
from server.words import Role

EVERYTHING = reads.InstanceFilter()


@strawberry.type(description="What callers can read.")
class Query(
    NodeQueries,
    ServerQueries,
    TokenQueries,
    OperationQueries,
    CatalogQueries,
    FleetQueries,
    JobQueries,
    EventQueries,
    WebhookQueries,
    SshQueries,
):
    @strawberry.field(
        description="One instance; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def instance(self, info: Info, id: Id) -> Instance | None:
        try:
            row = await info.context.loaders.instance.load(ids.read(ids.INSTANCE, id))
        except NotFound:
            return None
        return None if row is None else await _up_to_date(row, info)

    @strawberry.field(
        description="The instance of that name that is not deleted; null when there is none.",
        extensions=[Requires(Role.READER)],
    )
    async def instance_by_name(
        self, info: Info, name: Annotated[str, strawberry.argument(description="Its name, all of it.")]
    ) -> Instance | None:
        if any(name_problems(name, ())):
            return None  # no instance can have such a name
        async with info.context.read() as session:
            row = await reads.find_instance_by_name(session, name, project_id=info.context.caller.project_id)
        return None if row is None else await _up_to_date(row, info)

    @strawberry.field(
        description="Instances; newest first, unless told otherwise. A cursor belongs to the order it was made in.",
        extensions=[Requires(Role.READER)],
    )
    async def instances(
        self,
        info: Info,
        filter: Annotated[InstanceFilter | None, Which] = None,
        order_by: Annotated[
            InstanceOrderBy | None, strawberry.argument(description="In which order; without it, newest first.")
        ] = None,
        first: First = 50,
        after: After = None,
    ) -> InstanceConnection:
        wanted = EVERYTHING if filter is None else filter.to_read()
        order = order_by or InstanceOrderBy()
        size = check_first(first)
        place = None if after is None else read_order_cursor(after, order.name, order.kind)
        is_descending = order.direction is OrderDirection.DESC
        project_id = info.context.caller.project_id
        services = info.context.services
        has_replica = services.settings.database_read_url is not None
        if wanted == EVERYTHING and light.can_sort(order.field) and not has_replica:
            rows = await light.page(
                services.database,
                project_id=project_id,
                first=size + 1,
                after=place,
                order=order.field,
                descending=is_descending,
            )
            return LightConnection(rows, size, wanted=wanted, order=order, after=after)
        async with info.context.read_widely() as session:
            rows = await reads.page_of_instances(
                session,
                project_id=project_id,
                wanted=wanted,
                first=size + 1,
                after=place,
                order=order.field,
                descending=is_descending,
            )
        name = order.name
        edges = [
            InstanceEdge(cursor=order_cursor(name, reads.place_of(row, order.field), row.id), node=Instance.of(row))
            for row in rows[:size]
        ]
        return InstanceConnection(
            wanted=wanted,
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(rows) > size, after=after),
        )


async def _up_to_date(row: tables.Instance, info: Info) -> Instance:
    """One that is moving is looked at if nobody did for a while; the provider being away is never an error here."""
    reading = await info.context.services.watch.read(row)
    show = LightInstance if isinstance(reading.instance, light.Row) else Instance.of
    return show(reading.instance, seen_at=reading.seen_at)
