"""Queries: instance, instanceByName, instances."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.filters import InstanceFilter, InstanceOrderBy
from schema.inputs import After, First, Id, Which
from schema.lazy_instance import LazyInstance, columns_for
from schema.pagination import check_first, parse_order_cursor
from schema.permissions import query
from schema.selection import load_root, selected_names
from schema.types.connection import InstanceConnection
from schema.types.instance import Instance
from server.db import tables
from server.errors import NotFound
from server.instances.drafts import name_problems
from server.instances.provider.reader import READER_COLUMNS
from server.instances.queries import fast_page, instances


@strawberry.type
class InstanceQueries:
    @query("One instance; null if not found.")
    async def instance(self, info: Info, id: Id) -> Instance | None:
        try:
            part = info.context.loaders.part_of_instance(columns_for(selected_names(info)) | READER_COLUMNS)
            row = await load_root(info, part, ids.parse(ids.INSTANCE, id))
        except NotFound:
            return None
        return None if row is None else await _up_to_date(row, info)

    @query("The instance with this name that is not deleted; null if not found.")
    async def instance_by_name(
        self, info: Info, name: Annotated[str, strawberry.argument(description="The full name.")]
    ) -> Instance | None:
        if any(name_problems(name, ())):
            return None  # no instance can have such a name
        caller, columns = info.context.caller, columns_for(selected_names(info)) | READER_COLUMNS
        row = await fast_page.by_name(info.context.services.database, name, by=caller, columns=columns)
        return None if row is None else await _up_to_date(row, info)

    @query("Instances, newest first by default. A cursor is valid only for the order it was created with.")
    async def instances(
        self,
        info: Info,
        filter: Annotated[InstanceFilter | None, Which] = None,
        order_by: Annotated[
            InstanceOrderBy | None, strawberry.argument(description="Sort order. Default: newest first.")
        ] = None,
        first: First = 50,
        after: After = None,
    ) -> InstanceConnection:
        caller = info.context.caller
        wanted = instances.InstanceFilter(owner_id=caller.owner_id) if filter is None else filter.to_domain(caller)
        order = order_by or InstanceOrderBy()
        size = check_first(first)
        place = None if after is None else parse_order_cursor(after, order.name, order.kind)
        rows = await fast_page.page(
            info.context.services.database,
            project_id=caller.project_id,
            wanted=wanted,
            first=size + 1,
            after=place,
            order=order.field,
            descending=order.is_descending,
            columns=columns_for(selected_names(info)),
        )
        nodes: list[Instance] = [LazyInstance(row) for row in rows[:size]]
        return InstanceConnection(wanted=wanted, rows=rows, order=order, after=after, nodes=nodes)


async def _up_to_date(row: tables.InstanceLike, info: Info) -> Instance:
    """Polls a changing instance if its data is old; a provider outage is not an error here."""
    reading = await info.context.services.provider_reader.read(row)
    return LazyInstance(reading.instance, seen_at=reading.seen_at)
