"""Queries: webhooks, webhookDelivery, webhookDeliveries."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.inputs import After, First, Id, Which
from schema.permissions import query
from schema.types.webhook import (
    ProjectWebhook,
    ProjectWebhookConnection,
    ProjectWebhookEdge,
    WebhookDelivery,
    WebhookDeliveryConnection,
    WebhookDeliveryEdge,
)
from server.db import tables
from server.db.pages import Where
from server.db.tables import DeliveryRow, DeliveryStatus
from server.errors import NotFound
from server.webhooks import queries


@strawberry.input(
    description="Filter for deliveries; all given conditions must match. Without a filter: all of the project."
)
class WebhookDeliveryFilter:
    instance_id: strawberry.ID | None = strawberry.field(default=None, description="Id of an instance.")
    project_webhook_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a webhook of the project."
    )
    statuses: list[DeliveryStatus] | None = strawberry.field(default=None, description="Any of these statuses.")

    def to_domain(self) -> queries.DeliveryFilter:
        instance_id = None if self.instance_id is None else ids.parse_or_unused(ids.INSTANCE, self.instance_id)
        webhook_id = self.project_webhook_id
        return queries.DeliveryFilter(
            instance_id=instance_id,
            project_webhook_id=None if webhook_id is None else ids.parse_or_unused(ids.WEBHOOK, webhook_id),
            statuses=tuple(self.statuses or ()),
        )


@strawberry.type
class WebhookQueries:
    @query("Webhooks of the project, newest first; those of single instances are `Instance.webhook`.")
    async def webhooks(self, info: Info, first: First = 50, after: After = None) -> ProjectWebhookConnection:
        return await ProjectWebhookConnection.newest_first(
            info,
            tables.ProjectWebhookRow,
            Where().given("project_id = {}", info.context.caller.project_id),
            ProjectWebhookEdge,
            ProjectWebhook.of,
            first=first,
            after=after,
        )

    @query("One webhook delivery; null if not found.")
    async def webhook_delivery(self, info: Info, id: Id) -> WebhookDelivery | None:
        try:
            row = await info.context.loaders.delivery.load(ids.parse(ids.DELIVERY, id))
        except NotFound:
            return None
        return None if row is None else WebhookDelivery.of(row)

    @query("Webhook deliveries, newest first.")
    async def webhook_deliveries(
        self,
        info: Info,
        filter: Annotated[WebhookDeliveryFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> WebhookDeliveryConnection:
        wanted = (filter or WebhookDeliveryFilter()).to_domain()
        return await WebhookDeliveryConnection.newest_first(
            info,
            DeliveryRow,
            queries.conditions_on_deliveries(info.context.caller, wanted),
            WebhookDeliveryEdge,
            WebhookDelivery.of,
            first=first,
            after=after,
        )
