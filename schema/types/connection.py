"""Pages of instances and of operations."""

import strawberry

from schema.context import Info
from schema.types.instance import Instance
from schema.types.operation import Operation
from schema.types.page import PageInfo
from server.instances import reads


@strawberry.type(description="One instance of a page.")
class InstanceEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: Instance = strawberry.field(description="The instance.")


@strawberry.type(description="A page of instances.")
class InstanceConnection:
    wanted: strawberry.Private[reads.InstanceFilter]
    edges: list[InstanceEdge] = strawberry.field(description="The instances with their cursors.")
    nodes: list[Instance] = strawberry.field(description="The instances alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")

    @strawberry.field(description="How many there are in all; counted only if asked for.")
    async def total_count(self, info: Info) -> int:
        async with info.context.read_widely() as session:
            return await reads.count_instances(session, project_id=info.context.caller.project_id, wanted=self.wanted)


@strawberry.type(description="One operation of a page.")
class OperationEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: Operation = strawberry.field(description="The operation.")


@strawberry.type(description="A page of operations.")
class OperationConnection:
    wanted: strawberry.Private[reads.OperationFilter]
    edges: list[OperationEdge] = strawberry.field(description="The operations with their cursors.")
    nodes: list[Operation] = strawberry.field(description="The operations alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")

    @strawberry.field(description="How many there are in all; counted only if asked for.")
    async def total_count(self, info: Info) -> int:
        async with info.context.read_widely() as session:
            return await reads.count_operations(session, project_id=info.context.caller.project_id, wanted=self.wanted)
