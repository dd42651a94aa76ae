"""The column values of deliveries: to the webhook of an instance, and to those of its project."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from server.clock import new_id, now
from server.db.tables import DeliveryStatus, Instance
from server.events.event import Event, EventType
from server.webhooks.payload import event_body

TEST_EVENT = "webhook.test"


def delivery_row(
    instance: Instance, event: Mapping[str, Any], *, type: EventType, snapshot: Mapping[str, Any]
) -> dict[str, Any]:
    """The column values of an event's delivery."""
    body = event_body(
        event_id=event["id"],
        type=type,
        occurred_at=now(),
        instance_id=instance.id,
        operation_id=event["operation_id"],
        caused_by=event["caused_by"],
        data=event["data"],
        instance=snapshot,
    )
    return new_row(
        new_id(),
        instance.project_id,
        str(instance.webhook_url),
        type,
        body,
        instance_id=instance.id,
        event_id=event["id"],
    )


def new_row(
    id: UUID,
    project_id: UUID,
    url: str,
    type: str,
    body: str,
    *,
    instance_id: UUID | None = None,
    event_id: UUID | None = None,
) -> dict[str, Any]:
    """The columns that the batched statement of creates writes, too."""
    return {
        "id": id,
        "project_id": project_id,
        "instance_id": instance_id,
        "event_id": event_id,
        "event_type": type,
        "url": url,
        "body": body,
        "status": DeliveryStatus.PENDING,
        "keeps_order": type != TEST_EVENT,
        "attempts": 0,
        "counted": 0,
    }


def project_delivery_row(
    event: Event, *, webhook_id: UUID, url: str, snapshot: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The column values of an event's delivery to a webhook of its project."""
    body = event_body(
        event_id=event.id,
        type=event.type,
        occurred_at=event.occurred_at,
        instance_id=event.instance_id,
        operation_id=event.operation_id,
        caused_by=event.caused_by,
        data=event.data,
        instance=snapshot,
    )
    row = new_row(new_id(), event.project_id, url, event.type, body, event_id=event.id)
    return {**row, "project_webhook_id": webhook_id, "subject_id": event.instance_id}
