"""What callers can read."""

import strawberry

from schema import ids
from schema.context import Info
from schema.guards import Requires
from schema.paging import check_first, cursor_of, read_cursor
from schema.types.connection import InstanceConnection, InstanceEdge, PageInfo
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.errors import NotFound
from server.instances import reads
from server.instances.drafts import name_problems
from server.words import InstanceStatus, Role


@strawberry.input(description="Which instances; without it, all that are not deleted.")
class InstanceFilter:
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Only those in one of these statuses."
    )


@strawberry.type(description="What callers can read.")
class Query:
    @strawberry.field(
        description="One instance; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def instance(self, info: Info, id: strawberry.ID) -> Instance | None:
        try:
            row = await info.context.loaders.instance.load(ids.read(ids.INSTANCE, id))
        except NotFound:
            return None
        return None if row is None else Instance.of(row)

    @strawberry.field(
        description="The instance of that name that is not deleted; null when there is none.",
        extensions=[Requires(Role.READER)],
    )
    async def instance_by_name(self, info: Info, name: str) -> Instance | None:
        if any(name_problems(name, ())):
            return None  # no instance can have such a name
        async with info.context.read() as session:
            row = await reads.find_instance_by_name(session, name, project_id=info.context.caller.project_id)
        return None if row is None else Instance.of(row)

    @strawberry.field(description="Instances, newest first.", extensions=[Requires(Role.READER)])
    async def instances(
        self, info: Info, filter: InstanceFilter | None = None, first: int = 50, after: str | None = None
    ) -> InstanceConnection:
        wanted = reads.InstanceFilter(statuses=tuple((filter.statuses or ()) if filter else ()))
        size = check_first(first)
        async with info.context.read() as session:
            rows = await reads.page_of_instances(
                session,
                project_id=info.context.caller.project_id,
                wanted=wanted,
                first=size + 1,
                after=None if after is None else read_cursor(after),
            )
        edges = [InstanceEdge(cursor=cursor_of(row.created_at, row.id), node=Instance.of(row)) for row in rows[:size]]
        return InstanceConnection(
            wanted=wanted,
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo(has_next_page=len(rows) > size, end_cursor=edges[-1].cursor if edges else None),
        )

    @strawberry.field(
        description="One operation; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def operation(self, info: Info, id: strawberry.ID) -> Operation | None:
        try:
            row = await info.context.loaders.operation.load(ids.read(ids.OPERATION, id))
        except NotFound:
            return None
        return None if row is None else Operation.of(row)
