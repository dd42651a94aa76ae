"""What a receiver is told: the event as a subscription shows it, and the instance as it stood right after it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

LARGEST = 64 * 1024
MICROS_PER_E5 = 10

# Ids look here as they do in the API.
INSTANCE, OPERATION, EVENT, TOKEN = "inst", "op", "evt", "tok"

INSTANCE_FIELDS = (
    "name",
    "status",
    "status_reason",
    "status_since",
    "version",
    "product_name",
    "gpu_count",
    "region",
    "billing_mode",
    "endpoints",
    "health",
    "novita_id",
    "novita_status",
    "spot_reclaim_at",
    "created_at",
    "updated_at",
    "estimated_ready_at",
    "running_at",
    "ready_at",
    "deleted_at",
)
OPERATION_FIELDS = ("kind", "status", "phase", "version", "created_at", "started_at", "finished_at")
# What goes first when it is too much.
EXPENDABLE = ("labels", "endpoints", "failure")


def body_of(
    *,
    event_id: UUID,
    type: str,
    occurred_at: datetime,
    instance_id: UUID,
    caused_by: UUID | None,
    data: Mapping[str, Any],
    instance: Mapping[str, Any],
) -> str:
    """The request's body; `data` is the event's, `instance` a snapshot of the row."""
    shown = _instance(instance)
    event: dict[str, Any] = {
        "id": shown_id(EVENT, event_id),
        "type": type,
        "occurredAt": occurred_at.isoformat(),
        "instanceId": shown_id(INSTANCE, instance_id),
        "causedBy": None if caused_by is None else shown_id(TOKEN, caused_by),
        "previousStatus": data.get("from"),
        "status": data.get("to"),
        "instance": shown,
        "operation": _operation(data["operation"]) if data.get("operation") else None,
        "health": _health(data["health"]) if data.get("health") else None,
    }
    message = {"type": type, "timestamp": occurred_at.isoformat(), "data": event}
    body = orjson.dumps(message)
    for name in EXPENDABLE:
        if len(body) <= LARGEST:
            break
        shown[name] = None
        event["truncated"] = True
        body = orjson.dumps(message)
    return body.decode()


def body_of_test(*, delivery_id: UUID, at: datetime) -> str:
    """A message that tells of nothing, to see whether it arrives."""
    data = {"id": shown_id(EVENT, delivery_id), "type": "webhook.test", "occurredAt": at.isoformat()}
    return orjson.dumps({"type": "webhook.test", "timestamp": at.isoformat(), "data": data}).decode()


def shown_id(prefix: str, id: UUID | str) -> str:
    return f"{prefix}_{UUID(str(id)).hex}"


def _instance(row: Mapping[str, Any]) -> dict[str, Any]:
    failure = row.get("failure_code")
    labels: dict[str, str] = row.get("labels") or {}
    price = row.get("price_per_hour_e5")
    return {
        "id": shown_id(INSTANCE, row["id"]),
        **{_camel(name): row.get(name) for name in INSTANCE_FIELDS},
        "failure": None if failure is None else {"code": failure, "message": row.get("failure_message") or ""},
        "pricePerHour": None if price is None else {"amountMicros": price * MICROS_PER_E5, "currency": "USD"},
        "labels": [{"key": key, "value": value} for key, value in sorted(labels.items())],
    }


def _operation(row: Mapping[str, Any]) -> dict[str, Any]:
    code = row.get("error_code")
    error = {"code": code, "message": row.get("error_message") or "", "retryable": bool(row.get("error_retryable"))}
    return {
        "id": shown_id(OPERATION, row["id"]),
        **{_camel(name): row.get(name) for name in OPERATION_FIELDS},
        "error": None if code is None else error,
    }


def _health(health: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": health["status"],
        "endpoints": [{_camel(name): value for name, value in each.items()} for each in health["endpoints"]],
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
