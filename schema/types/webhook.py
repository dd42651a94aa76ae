"""Webhooks as callers see them."""

from datetime import datetime
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.types.node import Node
from schema.types.page import PageInfo
from schema.words import described
from server.db import tables
from server.db.tables import DeliveryStatus
from server.webhooks import reads

described(
    DeliveryStatus,
    description="Where a delivery stands.",
    values={
        "PENDING": "It will be sent, or sent again.",
        "DELIVERED": "The receiver answered with a 2xx.",
        "FAILED": "It was given up, or the receiver wants no more.",
    },
)


@strawberry.type(description="Where an instance's events are sent.")
class Webhook:
    url: str = strawberry.field(description="The receiver.")
    disabled_at: datetime | None = strawberry.field(
        description="When the receiver answered 410, after which nothing more is sent."
    )


@strawberry.type(description="One request to a receiver.")
class DeliveryAttempt:
    number: int = strawberry.field(description="1 for the first.")
    started_at: datetime = strawberry.field(description="When it was sent.")
    finished_at: datetime | None = strawberry.field(
        description="When its end was known; null while it is under way, or when the process that sent it died."
    )
    http_status: int | None = strawberry.field(description="What the receiver answered, if it did.")
    error_code: str | None = strawberry.field(description="Why it has not arrived, as a word; null when it has.")
    message: str | None = strawberry.field(description="Why it has not arrived, as a sentence.")

    @classmethod
    def of(cls, row: tables.DeliveryAttempt) -> "DeliveryAttempt":
        return cls(
            number=row.number,
            started_at=row.started_at,
            finished_at=row.finished_at,
            http_status=row.http_status,
            error_code=row.error_code,
            message=row.message,
        )


@strawberry.type(description="One message to one receiver, with its attempts.")
class WebhookDelivery(Node):
    row_id: strawberry.Private[UUID]
    webhook_id: str = strawberry.field(description="The header webhook-id, the same for all attempts.")
    instance_id: strawberry.ID | None = strawberry.field(description="The instance it is about; null for a test.")
    event_id: strawberry.ID | None = strawberry.field(description="The event it tells of; null for a test.")
    event_type: str = strawberry.field(description="What happened, such as instance.ready.")
    url: str = strawberry.field(description="The receiver.")
    body: str = strawberry.field(description="What is sent, byte for byte.")
    status: DeliveryStatus = strawberry.field(description="Where it stands.")
    error_code: str | None = strawberry.field(description="Why it has not arrived so far, as a word.")
    attempt_count: int = strawberry.field(description="How often it was sent.")
    created_at: datetime = strawberry.field(description="When the event happened.")
    next_attempt_at: datetime | None = strawberry.field(description="When it will be sent again, at the earliest.")
    finished_at: datetime | None = strawberry.field(description="When it was over.")

    @strawberry.field(description="Every attempt, in order.")
    async def attempts(self, info: Info) -> list[DeliveryAttempt]:
        return [DeliveryAttempt.of(row) for row in await info.context.loaders.delivery_attempts.load(self.row_id)]

    @classmethod
    def of(cls, row: tables.Delivery) -> "WebhookDelivery":
        return cls(
            row_id=row.id,
            id=strawberry.ID(ids.shown(ids.DELIVERY, row.id)),
            webhook_id=f"msg_{row.id.hex}",
            instance_id=None if row.instance_id is None else strawberry.ID(ids.shown(ids.INSTANCE, row.instance_id)),
            event_id=None if row.event_id is None else strawberry.ID(ids.shown(ids.EVENT, row.event_id)),
            event_type=row.event_type,
            url=row.url,
            body=row.body,
            status=DeliveryStatus(row.status),
            error_code=row.error_code,
            attempt_count=row.attempts,
            created_at=row.created_at,
            next_attempt_at=row.next_attempt_at,
            finished_at=row.finished_at,
        )


@strawberry.type(description="One delivery of a page.")
class WebhookDeliveryEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: WebhookDelivery = strawberry.field(description="The delivery.")


@strawberry.type(description="A page of deliveries.")
class WebhookDeliveryConnection:
    wanted: strawberry.Private[reads.DeliveryFilter]
    edges: list[WebhookDeliveryEdge] = strawberry.field(description="The deliveries with their cursors.")
    nodes: list[WebhookDelivery] = strawberry.field(description="The deliveries alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")

    @strawberry.field(description="How many there are in all; counted only if asked for.")
    async def total_count(self, info: Info) -> int:
        async with info.context.read() as session:
            return await reads.count_deliveries(session, project_id=info.context.caller.project_id, wanted=self.wanted)
