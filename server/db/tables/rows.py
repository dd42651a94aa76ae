"""Rows as queries return them: read-only values, made straight from what asyncpg read, without the ORM.

Columns that no query shows are left out.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import orjson
from sqlalchemy.dialects.postgresql import JSONB

from server.db.tables.audit import AuditEvent
from server.db.tables.base import Base
from server.db.tables.instance import Attempt, Operation
from server.db.tables.machine import Machine
from server.db.tables.market import MarketAlert, Offer
from server.db.tables.probe import ProbeResult
from server.db.tables.spend import Budget, Quota
from server.db.tables.token import Project, Token
from server.db.tables.volume import Volume
from server.db.tables.webhook import Delivery, DeliveryAttempt, ProjectWebhook

Model = TypeVar("Model", bound=tuple[Any, ...])


class OperationRow(NamedTuple):
    id: UUID
    instance_id: UUID
    kind: str
    action: str | None
    status: str
    phase: str
    version: int
    error_code: str | None
    error_message: str | None
    error_retryable: bool | None
    exit_code: int | None
    last_error_code: str | None
    last_error_message: str | None
    requested_by: UUID | None
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    estimated_ready_at: datetime | None


class AttemptRow(NamedTuple):
    operation_id: UUID
    number: int
    region: str
    product_id: str | None
    billing_mode: str | None
    price_per_hour_e5: int | None
    status: str
    reason_code: str | None
    reason_message: str | None
    created_at: datetime
    finished_at: datetime | None


class ProbeRow(NamedTuple):
    instance_id: UUID
    port: int
    type: str
    address: str | None
    is_healthy: bool
    http_status: int | None
    latency_ms: float
    error_kind: str | None
    message: str | None
    attempts: int
    checked_at: datetime


class DeliveryRow(NamedTuple):
    id: UUID
    instance_id: UUID | None
    project_webhook_id: UUID | None
    subject_id: UUID | None
    event_id: UUID | None
    event_type: str
    url: str
    body: str
    status: str
    attempts: int
    error_code: str | None
    created_at: datetime
    next_attempt_at: datetime | None
    finished_at: datetime | None


class DeliveryAttemptRow(NamedTuple):
    delivery_id: UUID
    number: int
    started_at: datetime
    finished_at: datetime | None
    http_status: int | None
    error_code: str | None
    message: str | None


class ProjectWebhookRow(NamedTuple):
    id: UUID
    url: str
    types: list[str]
    created_at: datetime
    disabled_at: datetime | None


class VolumeRow(NamedTuple):
    id: UUID
    name: str
    region: str
    size_gb: int
    status: str
    failure_code: str | None
    failure_message: str | None
    novita_id: str | None
    price_e5: int | None
    created_at: datetime
    updated_at: datetime


class BudgetRow(NamedTuple):
    id: UUID
    project_id: UUID
    name: str
    label_key: str | None
    label_value: str | None
    token_id: UUID | None
    period: str
    timezone: str
    limit_micros: int
    thresholds: list[int]
    action: str
    exempt: list[Any]
    horizon_s: int
    created_at: datetime


class MachineRow(NamedTuple):
    instance_id: UUID
    number: int
    novita_id: str
    region: str | None
    product_id: str | None
    billing_mode: str | None
    price_e5: int | None
    began_at: datetime
    serving_from: datetime | None
    removing_from: datetime | None
    ended_at: datetime | None
    end_reason: str | None


class OfferRow(NamedTuple):
    region: str
    product_id: str
    mode: str
    gpu_count: int
    product_name: str
    price_e5: int | None
    is_available: bool
    inventory: str | None
    seen_at: datetime
    changed_at: datetime


class MarketAlertRow(NamedTuple):
    id: UUID
    product_names: list[str] | None
    regions: list[str] | None
    modes: list[str] | None
    gpu_count: int
    price_at_most_e5: int | None
    held_for: timedelta
    cooldown: timedelta
    expires_at: datetime | None
    webhook_url: str | None
    fired_at: datetime | None
    created_at: datetime


class TokenRow(NamedTuple):
    id: UUID
    project_id: UUID
    name: str
    role: str
    hint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_session: bool
    created_by: UUID | None
    revoked_by: UUID | None
    limits: dict[str, Any] | None


class QuotaRow(NamedTuple):
    id: UUID
    project_id: UUID
    label_key: str | None
    label_value: str | None
    token_id: UUID | None
    max_instances: int | None
    max_gpus: int | None
    max_price_e5: int | None
    created_at: datetime


class ProjectRow(NamedTuple):
    id: UUID
    name: str
    created_at: datetime


class AuditEventRow(NamedTuple):
    id: UUID
    project_id: UUID
    token_id: UUID
    created_at: datetime
    request_id: str
    mutation: str
    input_digest: bytes
    target: str | None
    outcome: str
    error_code: str | None


# For functions that only read.
OperationLike: TypeAlias = Operation | OperationRow
AttemptLike: TypeAlias = Attempt | AttemptRow
ProbeLike: TypeAlias = ProbeResult | ProbeRow
DeliveryLike: TypeAlias = Delivery | DeliveryRow
DeliveryAttemptLike: TypeAlias = DeliveryAttempt | DeliveryAttemptRow
ProjectWebhookLike: TypeAlias = ProjectWebhook | ProjectWebhookRow
VolumeLike: TypeAlias = Volume | VolumeRow
BudgetLike: TypeAlias = Budget | BudgetRow
QuotaLike: TypeAlias = Quota | QuotaRow
MarketAlertLike: TypeAlias = MarketAlert | MarketAlertRow
TokenLike: TypeAlias = Token | TokenRow
ProjectLike: TypeAlias = Project | ProjectRow

_TABLES: dict[type[Any], type[Base]] = {
    OperationRow: Operation,
    AttemptRow: Attempt,
    ProbeRow: ProbeResult,
    DeliveryRow: Delivery,
    DeliveryAttemptRow: DeliveryAttempt,
    ProjectWebhookRow: ProjectWebhook,
    VolumeRow: Volume,
    BudgetRow: Budget,
    QuotaRow: Quota,
    MachineRow: Machine,
    OfferRow: Offer,
    MarketAlertRow: MarketAlert,
    TokenRow: Token,
    ProjectRow: Project,
    AuditEventRow: AuditEvent,
}


def select_rows(model: type[Model]) -> str:
    """`SELECT ... FROM ...`, to which a statement adds its conditions."""
    return f"SELECT {columns_of(model)} FROM {table_of(model)}"


def table_of(model: type[Any]) -> str:
    return _TABLES[model].__tablename__


def columns_of(model: type[Any], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}" for name in model._fields)


def make_rows(model: type[Model], records: Iterable[Any]) -> list[Model]:
    make: Any = getattr(model, "_make")  # noqa: B009 - a type variable does not show that it is a named tuple
    places = _json_places(model)
    return list(map(make, records)) if not places else [make(with_json(record, places)) for record in records]


def with_json(record: Any, places: Iterable[int]) -> list[Any]:
    """The values of a record, of which those at some places are JSON: lists and objects, as text unless a session has
    parsed them."""
    values = list(record)
    for place in places:
        if isinstance(values[place], str):
            values[place] = orjson.loads(values[place])
    return values


@cache
def _json_places(model: type[Any]) -> tuple[int, ...]:
    columns: Any = _TABLES[model].__table__.columns
    return tuple(place for place, name in enumerate(model._fields) if isinstance(columns[name].type, JSONB))
