"""What the tools return: the parts of an answer that an agent needs, without secrets."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field


class OperationView(BaseModel):
    """One verb on one instance."""

    id: str
    kind: str
    status: str = Field(description="QUEUED and RUNNING are open.")
    phase: str
    progress: int
    error_code: str | None = None
    error_message: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, operation: Any) -> "OperationView":
        error = operation.error
        return cls(
            id=operation.id,
            kind=str(operation.kind),
            status=str(operation.status),
            phase=str(operation.phase),
            progress=operation.progress,
            error_code=error and error.code,
            error_message=error and error.message,
            remedy=error and error.help,
        )


class InstanceView(BaseModel):
    """A GPU instance."""

    id: str
    name: str
    status: str = Field(description="READY: its endpoints respond.")
    status_reason: str | None
    product: str
    gpu_count: int
    region: str | None
    price_per_hour: str | None = Field(description="What is billed now; null if nothing is.")
    endpoints: list[str]
    ends_at: datetime | None = Field(description="When the server stops or deletes it.")
    ends_with: str | None
    labels: dict[str, str]
    failure: str | None
    open_operation: OperationView | None

    @classmethod
    def of(cls, instance: Any) -> "InstanceView":
        step = instance.lifetime and instance.lifetime.next
        failure = instance.failure
        return cls(
            id=instance.id,
            name=instance.name,
            status=str(instance.status),
            status_reason=instance.status_reason,
            product=instance.product_name,
            gpu_count=instance.gpu_count,
            region=instance.region,
            price_per_hour=str(instance.price_per_hour) if instance.price_per_hour else None,
            endpoints=[each.address for each in instance.endpoints],
            ends_at=step and step.at,
            ends_with=step and str(step.action),
            labels=instance.labels,
            failure=f"{failure.code}: {failure.message}" if failure else None,
            open_operation=OperationView.of(instance.open_operation) if instance.open_operation else None,
        )


class AcceptedView(BaseModel):
    """An accepted request. Call wait_for with the operation's id."""

    instance: InstanceView
    operation: OperationView
    replayed: bool = Field(description="Whether an earlier call with the same operation_key was answered.")

    @classmethod
    def of(cls, accepted: Any) -> "AcceptedView":
        return cls(
            instance=InstanceView.of(accepted.instance),
            operation=OperationView.of(accepted.operation),
            replayed=accepted.replayed,
        )


class CreatedView(AcceptedView):
    """An accepted create."""

    max_cost: str | None = Field(description="Most that it can cost until its end; null without a fixed end.")


class OfferView(BaseModel):
    """A product in a region."""

    product: str
    region: str
    spot_price_per_gpu_hour: str | None
    price_per_gpu_hour: str | None
    in_stock: bool
    vram_gb: int | None


class CandidateView(BaseModel):
    """A place where an instance could be created."""

    region: str
    billing_mode: str | None
    price_per_hour: str | None
    accepted: bool
    reason: str | None


class QuoteView(BaseModel):
    """Where and at what price."""

    price_per_hour: str | None = Field(description="Price of the best candidate; null if there is none.")
    candidates: list[CandidateView]


class WaitView(BaseModel):
    """An operation after a wait."""

    operation: OperationView
    is_over: bool
    call_again: bool = Field(description="Whether to call wait_for again now, because it goes on.")


class EventView(BaseModel):
    """One change."""

    type: str
    at: datetime
    instance_id: str
    status: str | None
    data: dict[str, str]


class EventsView(BaseModel):
    """A page of events, oldest first."""

    events: list[EventView]
    cursor: str | None = Field(description="Pass it as `after` to continue, also for events that come later.")
    has_more: bool = Field(description="Whether there are more now.")


class LogView(BaseModel):
    """The last lines of a log."""

    text: str


class SpendPartView(BaseModel):
    """One group."""

    key: str | None
    amount: str


class SpendView(BaseModel):
    """What was spent."""

    total: str
    groups: list[SpendPartView]


class InstancesView(BaseModel):
    """Instances, newest first."""

    instances: list[InstanceView]
    has_more: bool
