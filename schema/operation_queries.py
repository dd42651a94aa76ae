"""What callers can read about operations."""

from datetime import timedelta
from typing import Annotated

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.arguments import After, First, Id, Which
from schema.context import Info
from schema.filters import OperationFilter
from schema.guards import Requires
from schema.paging import check_first, cursor_of, read_cursor
from schema.types.connection import OperationConnection, OperationEdge
from schema.types.operation import Operation
from schema.types.page import PageInfo
from server.errors import NotFound
from server.instances import reads
from server.instances.awaiting import await_operation
from server.words import Role

LONGEST_WAIT = timedelta(seconds=60)  # below what most proxies allow a request to take
HALF_A_MINUTE = timedelta(seconds=30)


@strawberry.type
class OperationQueries:
    @strawberry.field(
        description="One operation; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def operation(self, info: Info, id: Id) -> Operation | None:
        try:
            row = await info.context.loaders.operation.load(ids.read(ids.OPERATION, id))
        except NotFound:
            return None
        return None if row is None else Operation.of(row)

    @strawberry.field(description="Operations, newest first.", extensions=[Requires(Role.READER)])
    async def operations(
        self,
        info: Info,
        filter: Annotated[OperationFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> OperationConnection:
        size = check_first(first)
        place = None if after is None else read_cursor(after)
        try:
            wanted = (filter or OperationFilter()).to_read()
        except NotFound:
            wanted = reads.OperationFilter(instance_id=ids.NOBODY)
        async with info.context.read_widely() as session:
            rows = await reads.page_of_operations(
                session, project_id=info.context.caller.project_id, wanted=wanted, first=size + 1, after=place
            )
        edges = [OperationEdge(cursor=cursor_of(row.created_at, row.id), node=Operation.of(row)) for row in rows[:size]]
        return OperationConnection(
            wanted=wanted,
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(rows) > size, after=after),
        )

    @strawberry.field(
        description="The operation as soon as it is over, or as it is when the time is over: ask again then. Null when "
        "there is none of that id.",
        extensions=[Requires(Role.READER)],
    )
    async def await_operation(
        self,
        info: Info,
        id: Id,
        timeout: Annotated[timedelta, strawberry.argument(description="How long to wait, 0 to 60 s.")] = HALF_A_MINUTE,
    ) -> Operation | None:
        if timeout > LONGEST_WAIT:
            message = f"`timeout` must be 0 to {LONGEST_WAIT.total_seconds():.0f} seconds."
            raise GraphQLError(message, extensions={"code": "INVALID_TIMEOUT", "retryable": False})
        services = info.context.services
        try:
            operation_id = ids.read(ids.OPERATION, id)
        except NotFound:
            return None
        row = await await_operation(
            services.database,
            services.tail,
            operation_id,
            project_id=info.context.caller.project_id,
            timeout=timeout,
        )
        return None if row is None else Operation.of(row)
