"""Refusals as GraphQL types, and the field extension that puts them into a payload."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

import strawberry
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension
from strawberry.types.field import StrawberryField

from schema import ids
from schema.context import Info
from schema.scalars import BigInt
from schema.types.money import MICROS_PER_E5, BillingMode, Money, money
from schema.types.operation import HELP, Operation
from server import errors
from server.clock import now
from server.conversion import convert
from server.db import tables
from server.error_codes import help_of
from server.market import refusals as market
from server.spend import refusals
from server.spend.refusals import QuotaExceeded


@strawberry.interface(description="Why a mutation was refused. A refused mutation changes nothing.")
class MutationError:
    code: str = strawberry.field(description="Stable error code, such as INSTANCE_NAME_TAKEN.")
    message: str = strawberry.field(description="Readable message.")
    path: list[str] = strawberry.field(
        description="Path of the input field; empty if the error is not about one field."
    )

    @strawberry.field(description=HELP)
    def help(self) -> str | None:
        return help_of(self.code)


@strawberry.type(description="An input field is invalid.")
class ValidationError(MutationError):
    pass


@strawberry.type(description="Not found, or not visible to this token.")
class NotFoundError(MutationError):
    pass


@strawberry.type(description="Another operation of the instance is in progress.")
class OperationInProgress(MutationError):
    operation: Operation = strawberry.field(description="The operation in progress.")


@strawberry.type(description="The instance's status does not allow this operation.")
class InvalidTransition(MutationError):
    current: str = strawberry.field(description="Current status of the instance.")
    allowed: list[str] = strawberry.field(description="Statuses that the current one can change to.")


@strawberry.type(description="Why one region was refused.")
class PlacementRefusal:
    region: str = strawberry.field(description="Region code.")
    billing_mode: BillingMode | None = strawberry.field(description="Billing mode that was tried.")
    code: str = strawberry.field(description="Stable reason code.")
    message: str = strawberry.field(description="Reason as readable text.")


@strawberry.type(description="No region has capacity for this request now.")
class NoCapacity(MutationError):
    attempts: list[PlacementRefusal] = strawberry.field(description="Each region that was tried, with the reason.")


@strawberry.type(description="The instance has changed since the version you expected.")
class VersionConflict(MutationError):
    current_version: int = strawberry.field(description="Current version of the instance.")


@strawberry.type(description="The filter of a bulk request matches another number of instances than you expected.")
class CountDiffers(MutationError):
    expected: int = strawberry.field(description="The number that you expected.")
    actual: int = strawberry.field(description="How many match now; above 100 they need several requests.")


@strawberry.type(description="The lifetime is longer than the project's policy allows.")
class LifetimeAbovePolicy(MutationError):
    at_most: timedelta = strawberry.field(description="Longest run that the project allows.")


@strawberry.type(description="The operation has ended or can no longer be cancelled.")
class NotCancellable(MutationError):
    operation: Operation = strawberry.field(description="The operation in its current state.")


@strawberry.type(description="A budget has less left than the request may cost.")
class BudgetExceeded(MutationError):
    budget_id: strawberry.ID = strawberry.field(description="Id of the budget.")
    budget_name: str = strawberry.field(description="Name of the budget.")
    remaining: Money = strawberry.field(description="What is left of it.")
    needed: Money = strawberry.field(description="What the request may cost in the budget's period.")
    resets_at: datetime | None = strawberry.field(description="When its next period begins; null: it has none.")


@strawberry.type(description="A quota of the project, of a label or of the token would be exceeded.")
class ProjectQuotaExceeded(MutationError):
    quota_id: strawberry.ID = strawberry.field(description="Id of the quota.")
    limit: str = strawberry.field(description="What would be exceeded: maxInstances, maxGpus or maxPricePerHour.")
    used: BigInt = strawberry.field(description="What counts now; a price is in millionths of a dollar.")
    maximum: BigInt = strawberry.field(description="What the quota allows.")


@strawberry.type(description="The token is for other products or regions.")
class TokenLimitExceeded(MutationError):
    limit: str = strawberry.field(description="Field of the token's limits: productNames or regions.")


@strawberry.type(description="The quoted machine costs more now than the quote and maxPriceDrift allow.")
class PriceDrifted(MutationError):
    quoted: Money = strawberry.field(description="Quoted price per hour.")
    price_now: Money = strawberry.field(description="Price per hour now.")


@strawberry.type(description="Too many creates of the project wait for their turn already.")
class QueueFull(MutationError):
    retry_at: datetime = strawberry.field(description="When there will probably be room again.")


@strawberry.type(description="Older operations of the project wait for every offer that would fit.")
class QueuedBehind(MutationError):
    ahead: int = strawberry.field(description="How many of them go first.")


@strawberry.type(name="Refusal", description="The request as a whole was refused.")
class ApiError(MutationError):
    pass


@strawberry.interface(description="Common part of all mutation payloads.")
class Payload:
    errors: list[MutationError] = strawberry.field(
        description="Reasons for the refusal; empty if the request was accepted.", default_factory=list["MutationError"]
    )

    def errors_only(self) -> Self:
        """The result of a dry run: only errors, because nothing else was written."""
        return type(self)(errors=self.errors)


ALL_ERRORS: list[type[MutationError]] = [
    ValidationError,
    NotFoundError,
    OperationInProgress,
    InvalidTransition,
    NoCapacity,
    VersionConflict,
    CountDiffers,
    NotCancellable,
    LifetimeAbovePolicy,
    BudgetExceeded,
    ProjectQuotaExceeded,
    TokenLimitExceeded,
    PriceDrifted,
    QueueFull,
    QueuedBehind,
    ApiError,
]


class RefusalsAsErrors(FieldExtension):
    """Catches refusals of the domain and returns them in the payload's `errors`, so that resolvers need no `try`.

    With `validateOnly` the resolver runs too, but every transaction is rolled back.
    """

    def apply(self, field: StrawberryField) -> None:
        self._payload: Any = field.type

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        if not getattr(kwargs.get("input"), "validate_only", False):
            return await self._resolve(next_, source, info, **kwargs)
        with info.context.dry_run():
            payload: Payload = await self._resolve(next_, source, info, **kwargs)
        return payload.errors_only()

    async def _resolve(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:
        try:
            return await next_(source, info, **kwargs)
        except errors.Refused as refused:
            return self._payload(errors=await errors_of(refused, info))


async def errors_of(refused: errors.Refused, info: Info) -> Sequence[MutationError]:
    """The GraphQL types of a refusal."""
    common: dict[str, Any] = {"code": refused.code, "message": refused.message, "path": list(refused.path)}
    match refused:
        case errors.Invalid():
            return [
                ValidationError(code=problem.code, message=problem.message, path=list(problem.path))
                for problem in refused.problems
            ]
        case errors.NotFound():
            return [NotFoundError(**common)]
        case errors.OperationInProgress():
            return [OperationInProgress(**common, operation=await _operation(refused.operation_id, info))]
        case errors.IllegalTransition():
            return [InvalidTransition(**common, current=refused.current, allowed=list(refused.allowed))]
        case errors.VersionConflict():
            return [VersionConflict(**common, current_version=refused.current)]
        case errors.CountDiffers():
            return [CountDiffers(**common, expected=refused.expected, actual=refused.actual)]
        case errors.NotCancellable():
            return [NotCancellable(**common, operation=await _operation(refused.operation_id, info))]
        case errors.LifetimeAbovePolicy():
            return [LifetimeAbovePolicy(**common, at_most=refused.at_most)]
        case errors.BudgetExceeded():
            return [
                BudgetExceeded(
                    **common,
                    budget_id=strawberry.ID(ids.format_id(ids.BUDGET, refused.budget_id)),
                    budget_name=refused.budget_name,
                    remaining=money(refused.remaining_micros),
                    needed=money(refused.needed_micros),
                    resets_at=refused.resets_at,
                )
            ]
        case QuotaExceeded():
            return [
                ProjectQuotaExceeded(
                    **common,
                    quota_id=strawberry.ID(ids.format_id(ids.QUOTA, refused.quota_id)),
                    limit=refused.limit,
                    used=BigInt(refused.used),
                    maximum=BigInt(refused.allowed),
                )
            ]
        case refusals.TokenLimitExceeded():
            return [TokenLimitExceeded(**common, limit=refused.limit)]
        case refusals.PriceDrifted():
            quoted, price_now = (money(each * MICROS_PER_E5) for each in (refused.quoted_e5, refused.now_e5))
            return [PriceDrifted(**common, quoted=quoted, price_now=price_now)]
        case errors.QueueFull():
            return [QueueFull(**common, retry_at=now() + refused.retry_after)]
        case market.QueuedBehind():
            return [QueuedBehind(**common, ahead=refused.ahead)]
        case errors.NoCapacity():
            attempts = [
                convert(PlacementRefusal, attempt, billing_mode=BillingMode.of(attempt.billing_mode))
                for attempt in refused.attempts
            ]
            return [NoCapacity(**common, attempts=attempts)]
        case _:
            return [ValidationError(**common) if refused.path else ApiError(**common)]


async def _operation(id: UUID, info: Info) -> Operation:
    async with info.context.read() as session:
        return Operation.of(await session.get_one(tables.Operation, id))
