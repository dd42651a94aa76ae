"""What callers can read about webhooks."""

from typing import Annotated

import strawberry

from schema import ids
from schema.arguments import After, First, Id, Which
from schema.context import Info
from schema.guards import Requires
from schema.paging import check_first, cursor_of, read_cursor
from schema.types.page import PageInfo
from schema.types.webhook import WebhookDelivery, WebhookDeliveryConnection, WebhookDeliveryEdge
from server.db.tables import DeliveryStatus
from server.errors import NotFound
from server.webhooks import reads
from server.words import Role


@strawberry.input(description="Which deliveries; without it, all of the project. All that is given must be so.")
class WebhookDeliveryFilter:
    instance_id: strawberry.ID | None = strawberry.field(default=None, description="Only about this instance.")
    statuses: list[DeliveryStatus] | None = strawberry.field(default=None, description="Only in one of these statuses.")

    def to_read(self) -> reads.DeliveryFilter:
        try:
            instance_id = None if self.instance_id is None else ids.read(ids.INSTANCE, self.instance_id)
        except NotFound:
            instance_id = ids.NOBODY
        return reads.DeliveryFilter(instance_id=instance_id, statuses=tuple(self.statuses or ()))


@strawberry.type
class WebhookQueries:
    @strawberry.field(
        description="One delivery; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def webhook_delivery(self, info: Info, id: Id) -> WebhookDelivery | None:
        try:
            delivery_id = ids.read(ids.DELIVERY, id)
        except NotFound:
            return None
        async with info.context.read() as session:
            row = await reads.get_delivery(session, delivery_id, project_id=info.context.caller.project_id)
        return None if row is None else WebhookDelivery.of(row)

    @strawberry.field(description="Deliveries to webhooks, newest first.", extensions=[Requires(Role.READER)])
    async def webhook_deliveries(
        self,
        info: Info,
        filter: Annotated[WebhookDeliveryFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> WebhookDeliveryConnection:
        size = check_first(first)
        wanted = (filter or WebhookDeliveryFilter()).to_read()
        async with info.context.read_widely() as session:
            rows = await reads.page_of_deliveries(
                session,
                project_id=info.context.caller.project_id,
                wanted=wanted,
                first=size + 1,
                after=None if after is None else read_cursor(after),
            )
        edges = [
            WebhookDeliveryEdge(cursor=cursor_of(row.created_at, row.id), node=WebhookDelivery.of(row))
            for row in rows[:size]
        ]
        return WebhookDeliveryConnection(
            wanted=wanted,
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(rows) > size, after=after),
        )
