"""Queries: operation, operations, awaitOperation."""

from datetime import timedelta
from typing import Annotated

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.context import Info
from schema.filters import OperationFilter
from schema.inputs import After, First, Id, Which
from schema.permissions import query
from schema.selection import load_root
from schema.types.connection import OperationConnection, OperationEdge
from schema.types.operation import Operation
from server.db import tables
from server.errors import NotFound
from server.instances.queries import operations as reads
from server.instances.queries.await_operation import await_operation

MAX_AWAIT_TIMEOUT = timedelta(seconds=60)  # below the request timeout of most proxies
DEFAULT_AWAIT_TIMEOUT = timedelta(seconds=30)


@strawberry.type
class OperationQueries:
    @query("One operation; null if not found.")
    async def operation(self, info: Info, id: Id) -> Operation | None:
        try:
            row = await load_root(info, info.context.loaders.operation, ids.parse(ids.OPERATION, id))
        except NotFound:
            return None
        return None if row is None else Operation.of(row)

    @query("Operations, newest first.")
    async def operations(
        self,
        info: Info,
        filter: Annotated[OperationFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> OperationConnection:
        wanted = (filter or OperationFilter()).to_domain()
        return await OperationConnection.newest_first(
            info,
            tables.OperationRow,
            reads.conditions_on_operations(info.context.caller, wanted),
            OperationEdge,
            Operation.of,
            first=first,
            after=after,
        )

    @query(
        "Wait for an operation to end and return it. After the timeout it is returned unfinished: call "
        "again. Null if not found."
    )
    async def await_operation(
        self,
        info: Info,
        id: Id,
        timeout: Annotated[
            timedelta, strawberry.argument(description="How long to wait, 0 to 60 s.")
        ] = DEFAULT_AWAIT_TIMEOUT,
    ) -> Operation | None:
        if timeout > MAX_AWAIT_TIMEOUT:
            message = f"`timeout` must be 0 to {MAX_AWAIT_TIMEOUT.total_seconds():.0f} seconds."
            raise GraphQLError(message, extensions={"code": "INVALID_TIMEOUT", "retryable": False})
        services = info.context.services
        try:
            operation_id = ids.parse(ids.OPERATION, id)
        except NotFound:
            return None
        row = await await_operation(
            services.database,
            services.tail,
            operation_id,
            by=info.context.caller,
            timeout=timeout,
        )
        return None if row is None else Operation.of(row)
