"""Types of webhooks and deliveries."""

from datetime import datetime
from operator import attrgetter
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.loaded import Lookup
from schema.pagination import CountedConnection, Edge
from server.conversion import convert
from server.db import tables
from server.db.tables import DeliveryStatus

described(
    DeliveryStatus,
    description="Status of a delivery.",
    values={
        "PENDING": "Waiting to be sent or retried.",
        "DELIVERED": "The receiver responded with a 2xx status.",
        "FAILED": "Failed for good, or disabled by the receiver.",
    },
)


@strawberry.type(description="Webhook of an instance.")
class Webhook:
    url: str = strawberry.field(description="URL of the receiver.")
    disabled_at: datetime | None = strawberry.field(
        description="When the receiver responded with 410; nothing is sent after that."
    )


@strawberry.type(description="Where events of the whole project are sent, beside the webhooks of single instances.")
class ProjectWebhook(Node):
    url: str = strawberry.field(description="URL of the receiver.")
    types: list[str] = strawberry.field(description="Types of the events that are sent, in alphabetical order.")
    disabled_at: datetime | None = strawberry.field(
        description="When the receiver responded with 410; nothing is sent after that."
    )
    created_at: datetime = strawberry.field(description="Creation time; later events are sent.")

    @classmethod
    def of(cls, row: tables.ProjectWebhookLike) -> "ProjectWebhook":
        return convert(cls, row, id=strawberry.ID(ids.format_id(ids.WEBHOOK, row.id)), types=list(row.types))


@strawberry.type(description="A webhook of the project with its cursor.")
class ProjectWebhookEdge(Edge[ProjectWebhook]):
    pass


@strawberry.type(description="A page of webhooks of the project.")
class ProjectWebhookConnection(CountedConnection[ProjectWebhookEdge, ProjectWebhook]):
    pass


@strawberry.type(description="One request to the receiver.")
class DeliveryAttempt:
    number: int = strawberry.field(description="Number of the attempt, starting at 1.")
    started_at: datetime = strawberry.field(description="When it was sent.")
    finished_at: datetime | None = strawberry.field(
        description="When it ended; null while in progress, or if the sending process died."
    )
    http_status: int | None = strawberry.field(description="HTTP status of the response, if any.")
    error_code: str | None = strawberry.field(description="Error code; null if delivered.")
    message: str | None = strawberry.field(description="Error message.")

    @classmethod
    def of(cls, row: tables.DeliveryAttemptLike) -> "DeliveryAttempt":
        return convert(cls, row)


ATTEMPTS = Lookup(
    attrgetter("delivery_attempts"), attrgetter("row_id"), lambda rows: [DeliveryAttempt.of(row) for row in rows]
)


@strawberry.type(description="One webhook message with its attempts.")
class WebhookDelivery(Node):
    row_id: strawberry.Private[UUID]
    webhook_id: str = strawberry.field(description="Header webhook-id; the same for all attempts.")
    instance_id: strawberry.ID | None = strawberry.field(
        description="Id of the instance; null for a test, and for an event that is not about one."
    )
    project_webhook_id: strawberry.ID | None = strawberry.field(
        description="Id of the project's webhook; null for the webhook of an instance, and for a test."
    )
    event_id: strawberry.ID | None = strawberry.field(description="Id of the event; null for a test.")
    event_type: str = strawberry.field(description="Event type, such as instance.ready.")
    url: str = strawberry.field(description="URL of the receiver.")
    body: str = strawberry.field(description="Request body, exactly as sent.")
    status: DeliveryStatus = strawberry.field(description="Status.")
    error_code: str | None = strawberry.field(description="Error code of the last attempt; null if delivered.")
    attempt_count: int = strawberry.field(description="Number of attempts.")
    created_at: datetime = strawberry.field(description="Time of the event.")
    next_attempt_at: datetime | None = strawberry.field(description="Earliest time of the next attempt.")
    finished_at: datetime | None = strawberry.field(description="When it ended.")

    @strawberry.field(description="All attempts, in order.", metadata=ATTEMPTS.metadata)
    async def attempts(self, info: Info) -> list[DeliveryAttempt]:
        return await ATTEMPTS.load(self, info)

    @classmethod
    def of(cls, row: tables.DeliveryLike) -> "WebhookDelivery":
        return convert(
            cls,
            row,
            row_id=row.id,
            id=strawberry.ID(ids.format_id(ids.DELIVERY, row.id)),
            webhook_id=f"msg_{row.id.hex}",
            instance_id=_id(ids.INSTANCE, row.instance_id or row.subject_id),
            project_webhook_id=_id(ids.WEBHOOK, row.project_webhook_id),
            event_id=_id(ids.EVENT, row.event_id),
            status=DeliveryStatus(row.status),
            attempt_count=row.attempts,
        )


def _id(prefix: str, id: UUID | None) -> strawberry.ID | None:
    return None if id is None else strawberry.ID(ids.format_id(prefix, id))


@strawberry.type(description="A delivery with its cursor.")
class WebhookDeliveryEdge(Edge[WebhookDelivery]):
    pass


@strawberry.type(description="A page of deliveries.")
class WebhookDeliveryConnection(CountedConnection[WebhookDeliveryEdge, WebhookDelivery]):
    pass
