"""Tables of instances, operations, create attempts and idempotency keys."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of
from server.enums import (
    LIVE_ATTEMPT,
    OPEN_OPERATION,
    AttemptStatus,
    Billing,
    InstanceStatus,
    OperationKind,
    OperationPhase,
    OperationStatus,
)

EMPTY_OBJECT = text("'{}'::jsonb")
EMPTY_LIST = text("'[]'::jsonb")


def _words(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


class Instance(Base):
    """A GPU instance of a user. Only `server.instances.transitions` writes `status` and `version`."""

    __tablename__ = "instance"
    __table_args__ = (
        one_of("status", InstanceStatus),
        one_of("billing", Billing),
        CheckConstraint("gpu_count BETWEEN 0 AND 8", name="gpu_count_is_possible"),
        CheckConstraint("(status = 'FAILED') = (failure_code IS NOT NULL)", name="failed_says_why"),
        CheckConstraint("(status = 'DELETED') = (deleted_at IS NOT NULL)", name="deleted_has_a_time"),
        CheckConstraint("status <> 'READY' OR ready_at IS NOT NULL", name="ready_has_a_time"),
        Index(
            "instance_name_is_unique_among_the_living",
            "project_id",
            "name",
            unique=True,
            postgresql_where=text("status <> 'DELETED'"),
        ),
        # A machine whose row is DELETED may turn out to exist, and is then adopted by another row.
        Index(
            "instance_novita_id_is_unique_among_the_living",
            "novita_id",
            unique=True,
            postgresql_where=text("novita_id IS NOT NULL AND status <> 'DELETED'"),
        ),
        Index("instance_by_project", "project_id", "created_at", "id"),
        # For most pages. Deleted rows are kept for ever, and a page must not scan them.
        Index(
            "instance_living_by_project",
            "project_id",
            "created_at",
            "id",
            postgresql_where=text("status <> 'DELETED'"),
        ),
        Index("instance_living_by_status", "project_id", "status", "id", postgresql_where=text("status <> 'DELETED'")),
        Index(
            "instance_living_by_status_since",
            "project_id",
            "status_since",
            "id",
            postgresql_where=text("status <> 'DELETED'"),
        ),
        Index(
            "instance_living_by_price",
            "project_id",
            text("coalesce(price_per_hour_e5, 0)"),
            "id",
            postgresql_where=text("status <> 'DELETED'"),
        ),
        Index(
            "instance_living_by_start_of_name",
            "project_id",
            func.lower(text("name")).label("start_of_name"),
            postgresql_ops={"start_of_name": "text_pattern_ops"},
            postgresql_where=text("status <> 'DELETED'"),
        ),
        Index(
            "instance_living_by_part_of_name",
            text("parts_of_name(name)"),
            postgresql_using="gin",
            postgresql_where=text("status <> 'DELETED'"),
        ),
        # Usually empty: a process of an older release leaves the variables of what it deletes.
        Index("instance_deleted_with_env", "id", postgresql_where=text("status = 'DELETED' AND env <> '{}'::jsonb")),
        Index(
            "instance_by_end_of_lifetime",
            "lifetime_due_at",
            postgresql_where=text("lifetime_due_at IS NOT NULL"),
        ),
        # Empty for most projects: see `owner_token_id`.
        Index(
            "instance_by_owner",
            "owner_token_id",
            "created_at",
            "id",
            postgresql_where=text("owner_token_id IS NOT NULL"),
        ),
        # To find those whose endpoints are watched.
        Index("instance_ready", "id", postgresql_where=text("status = 'READY'")),
        Index(
            "instance_unhealthy",
            "id",
            postgresql_where=text("status = 'FAILED' AND failure_code = 'HEALTH_CHECK_FAILED'"),
        ),
        Index(
            "instance_by_label_or_key",
            "labels",
            postgresql_using="gin",
            postgresql_where=text("labels <> '{}'::jsonb"),
        ),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    # The token that created it, if that token sees only its own instances; null for all others.
    owner_token_id: Mapped[UUID | None]
    name: Mapped[str]
    status: Mapped[str]
    version: Mapped[int] = mapped_column(server_default=text("1"))
    status_reason: Mapped[str | None]
    failure_code: Mapped[str | None]
    failure_message: Mapped[str | None]

    product_name: Mapped[str]
    gpu_count: Mapped[int]  # 0: a CPU instance
    rootfs_size_gb: Mapped[int]
    billing: Mapped[str]
    max_hourly_price_e5: Mapped[int | None]
    regions: Mapped[list[str]] = mapped_column(server_default=EMPTY_LIST)
    placement: Mapped[str | None]  # a PlacementOrder; null: REGION_ORDER
    template_id: Mapped[str | None]
    image: Mapped[str]
    image_auth_id: Mapped[str | None]
    command: Mapped[str | None]
    entrypoint: Mapped[str | None]
    # Values are strings, or encrypted: see server/encryption.py. Empty once DELETED.
    env: Mapped[dict[str, Any]] = mapped_column(server_default=EMPTY_OBJECT)
    secret_env: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))  # names; null: by their names
    ports: Mapped[list[Any]] = mapped_column(server_default=EMPTY_LIST)
    tools: Mapped[list[Any]] = mapped_column(server_default=EMPTY_LIST)  # such as Jupyter
    min_cuda_version: Mapped[str | None]
    network_id: Mapped[str | None]  # of a private network, by the provider's id
    # Network volumes that the machine mounts: volume_id, novita_id, mount_path.
    volumes: Mapped[list[Any]] = mapped_column(server_default=EMPTY_LIST)
    labels: Mapped[dict[str, str]] = mapped_column(server_default=EMPTY_OBJECT)
    health_check: Mapped[dict[str, Any]] = mapped_column(server_default=EMPTY_OBJECT)
    ready_timeout_seconds: Mapped[int | None]  # null: INSTANCE_MAX_WAIT

    novita_id: Mapped[str | None]
    novita_status: Mapped[str | None]
    region: Mapped[str | None]
    product_id: Mapped[str | None]
    billing_mode: Mapped[str | None]
    price_per_hour_e5: Mapped[int | None]
    endpoints: Mapped[list[Any]] = mapped_column(server_default=EMPTY_LIST)
    spot_reclaim_at: Mapped[datetime | None]
    observed_at: Mapped[datetime | None]
    # Since when looks at the provider do not find its machine.
    missing_since: Mapped[datetime | None]
    # Of the container that ended by itself; cleared when a run begins.
    exit_code: Mapped[int | None]
    exit_message: Mapped[str | None]
    health: Mapped[str | None]
    degraded_since: Mapped[datetime | None]  # only while READY

    webhook_url: Mapped[str | None]
    webhook_disabled_at: Mapped[datetime | None]

    # The limits as given (server/instances/limits/spec.py), what has happened to them since (`State` in steps.py), and
    # the next step that follows from both. A heartbeat moves it without writing it, so it may be early.
    lifetime: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    lifetime_state: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    lifetime_due_at: Mapped[datetime | None]
    lifetime_action: Mapped[str | None]
    lifetime_reason: Mapped[str | None]
    heartbeat_at: Mapped[datetime | None]
    # How it comes back by itself (server/instances/recovery/spec.py), and what is going on (incident.py).
    recovery: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    recovery_state: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    # When the provider accepted the create or start of this run.
    run_accepted_at: Mapped[datetime | None]

    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    status_since: Mapped[CreatedAt]
    estimated_ready_at: Mapped[datetime | None]
    running_at: Mapped[datetime | None]
    ready_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]


class Operation(Base):
    """One operation on one instance, from its request to its end."""

    __tablename__ = "operation"
    __table_args__ = (
        one_of("kind", OperationKind),
        one_of("status", OperationStatus),
        one_of("phase", OperationPhase),
        CheckConstraint(f"(status IN ({_words(OPEN_OPERATION)})) = (finished_at IS NULL)", name="over_has_a_time"),
        CheckConstraint("(status = 'FAILED') = (error_code IS NOT NULL)", name="failed_says_why"),
        Index(
            "operation_one_open_per_instance",
            "instance_id",
            unique=True,
            postgresql_where=text(f"status IN ({_words(OPEN_OPERATION)})"),
        ),
        Index("operation_of_instance", "instance_id", "created_at", "id"),
        Index("operation_by_project", "project_id", "created_at", "id"),
        # What creates and starts that have no paid machine yet may cost.
        Index(
            "operation_with_reserve",
            "project_id",
            postgresql_where=text(f"status IN ({_words(OPEN_OPERATION)}) AND reserved_price_e5 IS NOT NULL"),
        ),
        # For estimates: the durations of recent operations of a kind, by product and region.
        Index(
            "operation_that_succeeded",
            "project_id",
            "kind",
            "product_name",
            "region",
            "finished_at",
            postgresql_where=text("status = 'SUCCEEDED'"),
        ),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id"))
    kind: Mapped[str]
    action: Mapped[str | None]  # an OperationAction; null: what the kind says
    status: Mapped[str]
    phase: Mapped[str]
    version: Mapped[int] = mapped_column(server_default=text("1"))
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    error_retryable: Mapped[bool | None]
    exit_code: Mapped[int | None]  # of the container that ended by itself, if that is why it failed
    # Why it waits: the provider's last error, until a later call succeeds.
    last_error_code: Mapped[str | None]
    last_error_message: Mapped[str | None]
    requested_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    reason: Mapped[str | None]  # an OperationReason; null if a caller requested it
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    estimated_ready_at: Mapped[datetime | None]
    # When the provider was called, committed before the call: if it is set, the call may have been made.
    asked_at: Mapped[datetime | None]
    # The instance's state when the operation was accepted, to revert to if the provider refuses; and the machine's run
    # before the provider was called.
    before: Mapped[dict[str, Any]] = mapped_column(server_default=EMPTY_OBJECT)
    # The changes of an UPDATE. Environment variables among them are erased when it ends.
    wanted: Mapped[dict[str, Any]] = mapped_column(server_default=EMPTY_OBJECT)
    # What a create or start may cost: the price of an hour, and the time to its hard end; null: it has none.
    reserved_price_e5: Mapped[int | None]
    reserved_s: Mapped[int | None]
    # Of the instance when the operation succeeded.
    product_name: Mapped[str | None]
    region: Mapped[str | None]


class Attempt(Base):
    """One attempt to create an instance in one region. Committed before the provider is called: see `AttemptStatus`.

    A region without a matching product gets a REJECTED attempt without a marker, because no call was made.
    """

    __tablename__ = "attempt"
    __table_args__ = (
        one_of("status", AttemptStatus),
        CheckConstraint("(status = 'CREATED') = (novita_id IS NOT NULL)", name="created_has_novita_id"),
        CheckConstraint(f"(status IN ({_words(LIVE_ATTEMPT)})) = (finished_at IS NULL)", name="over_has_a_time"),
        CheckConstraint(
            "status = 'REJECTED' OR (marker IS NOT NULL AND cluster_id IS NOT NULL AND product_id IS NOT NULL"
            " AND billing_mode IS NOT NULL AND price_per_hour_e5 IS NOT NULL)",
            name="asked_says_for_what",
        ),
        Index(
            "attempt_one_live_per_instance",
            "instance_id",
            unique=True,
            postgresql_where=text(f"status IN ({_words(LIVE_ATTEMPT)})"),
        ),
        Index(
            "attempt_one_created_per_operation",
            "operation_id",
            unique=True,
            postgresql_where=text("status = 'CREATED'"),
        ),
        Index("attempt_number_is_unique", "operation_id", "number", unique=True),
        Index("attempt_marker_is_unique", "marker", unique=True),
    )

    id: Mapped[Id]
    operation_id: Mapped[UUID] = mapped_column(ForeignKey("operation.id"))
    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id"))
    number: Mapped[int]
    marker: Mapped[str | None]
    region: Mapped[str]
    cluster_id: Mapped[str | None]
    product_id: Mapped[str | None]
    billing_mode: Mapped[str | None]
    price_per_hour_e5: Mapped[int | None]
    status: Mapped[str]
    reason_code: Mapped[str | None]
    reason_message: Mapped[str | None]
    novita_id: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    """The request that a caller's key stands for, so that repeating it returns the first result."""

    __tablename__ = "idempotency_key"
    __table_args__ = (
        # For retention; without the first, each deleted operation would search all keys.
        Index("idempotency_key_by_operation", "operation_id"),
        Index("idempotency_key_by_age", "created_at"),
        Index("idempotency_key_by_object", "object_id", postgresql_where=text("object_id IS NOT NULL")),
    )

    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[bytes]
    # Deferred: the key is written first, so that a second caller with it waits before writing anything else.
    # None for a bulk request, whose instances have keys of their own, and for other objects than operations.
    operation_id: Mapped[UUID | None] = mapped_column(ForeignKey("operation.id", deferrable=True, initially="DEFERRED"))
    # A created object that is not an operation, by the id of its row.
    object_id: Mapped[UUID | None]
    # Of a bulk request with a filter: the instances that it was decided to be about.
    instance_ids: Mapped[list[str] | None]
    created_at: Mapped[CreatedAt]
