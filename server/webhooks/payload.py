"""The JSON body of a webhook: the event as in a subscription, and the instance right after it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from pydantic.alias_generators import to_camel

from server.billing import is_billed
from server.clock import format_id

BODY_MAX = 64 * 1024
MICROS_PER_E5 = 10

# Prefixes of ids, as in the API.
INSTANCE, OPERATION, EVENT, TOKEN = "inst", "op", "evt", "tok"

# Column names with their names in JSON.
INSTANCE_FIELDS = {
    name: to_camel(name)
    for name in (
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
        "degraded_since",
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
}
OPERATION_FIELDS = {
    name: to_camel(name) for name in ("kind", "status", "phase", "version", "created_at", "started_at", "finished_at")
}
# Set to null, in this order, until the body fits.
DROPPED_IF_TOO_LARGE = ("labels", "endpoints", "failure", "exit")


def event_body(
    *,
    event_id: UUID,
    type: str,
    occurred_at: datetime,
    instance_id: UUID | None,
    operation_id: UUID | None,
    caused_by: UUID | None,
    data: Mapping[str, Any],
    instance: Mapping[str, Any] | None,
) -> str:
    """The body for an event; `data` is the event's, `instance` a snapshot of the row, None if it is about none."""
    shown = None if instance is None else _instance(instance)
    objects: Mapping[str, str] = data.get("objects") or {}
    event: dict[str, Any] = {
        "id": format_id(EVENT, event_id),
        "type": type,
        "occurredAt": occurred_at.isoformat(),
        "instanceId": None if instance_id is None else format_id(INSTANCE, instance_id),
        "operationId": None if operation_id is None else format_id(OPERATION, operation_id),
        "causedBy": None if caused_by is None else format_id(TOKEN, caused_by),
        "previousStatus": data.get("from"),
        "status": data.get("to"),
        "instance": shown,
        "operation": _operation(data["operation"]) if data.get("operation") else None,
        "attempt": _camel(data["attempt"]) if data.get("attempt") else None,
        "health": _health(data["health"]) if data.get("health") else None,
        "data": data.get("values") or {},
        **{f"{name}Id": id for name, id in objects.items()},
    }
    message = {"type": type, "timestamp": occurred_at.isoformat(), "data": event}
    body = orjson.dumps(message)
    for name in DROPPED_IF_TOO_LARGE:
        if len(body) <= BODY_MAX or shown is None:
            break
        shown[name] = None
        event["truncated"] = True
        body = orjson.dumps(message)
    return body.decode()


def test_body(*, delivery_id: UUID, at: datetime) -> str:
    """The body of a test message."""
    data = {"id": format_id(EVENT, delivery_id), "type": "webhook.test", "occurredAt": at.isoformat()}
    return orjson.dumps({"type": "webhook.test", "timestamp": at.isoformat(), "data": data}).decode()


def _instance(row: Mapping[str, Any]) -> dict[str, Any]:
    failure = row.get("failure_code")
    labels: dict[str, str] = row.get("labels") or {}
    price = _money(row.get("price_per_hour_e5"))
    return {
        "id": format_id(INSTANCE, UUID(row["id"])),
        **{field: row.get(name) for name, field in INSTANCE_FIELDS.items()},
        "failure": None if failure is None else {"code": failure, "message": row.get("failure_message") or ""},
        "exit": _exit(row),
        "pricePerHour": price if is_billed(row["status"], row.get("novita_status")) else None,
        "runningPricePerHour": price,
        "labels": [{"key": key, "value": value} for key, value in sorted(labels.items())],
    }


def _exit(row: Mapping[str, Any]) -> dict[str, Any] | None:
    message = row.get("exit_message")
    return None if message is None else {"code": row.get("exit_code"), "message": message}


def _money(amount_e5: int | None) -> dict[str, Any] | None:
    return None if amount_e5 is None else {"amountMicros": amount_e5 * MICROS_PER_E5, "currency": "USD"}


def _operation(row: Mapping[str, Any]) -> dict[str, Any]:
    code = row.get("error_code")
    error = {
        "code": code,
        "message": row.get("error_message") or "",
        "retryable": bool(row.get("error_retryable")),
        "exitCode": row.get("exit_code"),
    }
    return {
        "id": format_id(OPERATION, UUID(row["id"])),
        **{field: row.get(name) for name, field in OPERATION_FIELDS.items()},
        "error": None if code is None else error,
    }


def _health(health: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": health["status"],
        "endpoints": [_camel(each) for each in health["endpoints"]],
    }


def _camel(values: Mapping[str, Any]) -> dict[str, Any]:
    return {to_camel(name): value for name, value in values.items()}
