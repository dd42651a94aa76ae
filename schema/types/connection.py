"""Pages of instances and of operations."""

from collections.abc import Sequence

import strawberry

from schema.context import Info
from schema.filters import InstanceOrderBy
from schema.pagination import CountedConnection, Edge, PageInfo, order_cursor
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.db.tables import InstanceRow
from server.instances.queries import instances


@strawberry.type(description="An instance with its cursor.")
class InstanceEdge(Edge[Instance]):
    pass


def _edges(self: "InstanceConnection") -> list[InstanceEdge]:
    return [self.edge(place) for place in range(len(self.nodes))]


def _page_info(self: "InstanceConnection") -> PageInfo:
    ends = [self.edge(0), self.edge(len(self.nodes) - 1)] if self.nodes else []
    return PageInfo.of(ends, has_more=len(self.rows) > len(self.nodes), after=self.after)


@strawberry.type(description="A page of instances.")
class InstanceConnection:
    """`rows` has one row more than `nodes` if there is a next page. Cursors are made when they are selected."""

    wanted: strawberry.Private[instances.InstanceFilter]
    rows: strawberry.Private[Sequence[InstanceRow]]
    order: strawberry.Private[InstanceOrderBy]
    after: strawberry.Private[str | None]
    edges: list[InstanceEdge] = strawberry.field(resolver=_edges, description="The items with their cursors.")
    nodes: list[Instance] = strawberry.field(description="The items without cursors.")
    page_info: PageInfo = strawberry.field(resolver=_page_info, description="Position of this page.")

    def edge(self, place: int) -> InstanceEdge:
        row = self.rows[place]
        place_of_row = instances.place_of(row, self.order.field, descending=self.order.is_descending)
        cursor = order_cursor(self.order.name, place_of_row, row.id)
        return InstanceEdge(cursor=cursor, node=self.nodes[place])

    @strawberry.field(description="Number of items on all pages; counted only if selected.")
    async def total_count(self, info: Info) -> int:
        async with info.context.read_from_replica_if_fresh() as session:
            return await instances.count_instances(
                session, project_id=info.context.caller.project_id, wanted=self.wanted
            )


@strawberry.type(description="An operation with its cursor.")
class OperationEdge(Edge[Operation]):
    pass


@strawberry.type(description="A page of operations.")
class OperationConnection(CountedConnection[OperationEdge, Operation]):
    pass
