"""Refusals as GraphQL types, and the extension that maps them into the payload."""

from collections.abc import Sequence
from typing import Any, Self

import strawberry
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension
from strawberry.types.field import StrawberryField

from schema.context import Info
from schema.types.billing import BillingMode
from schema.types.operation import Operation
from server import errors
from server.db import tables


@strawberry.interface(description="Why a mutation was refused. Nothing was changed.")
class MutationError:
    code: str = strawberry.field(description="A stable word for programs, such as INSTANCE_NAME_TAKEN.")
    message: str = strawberry.field(description="A sentence for people.")
    path: list[str] = strawberry.field(description="The input field it is about; empty when it is about no one field.")


@strawberry.type(description="A field of the input is not right.")
class ValidationError(MutationError):
    pass


@strawberry.type(description="There is no such thing, or not for you.")
class NotFoundError(MutationError):
    pass


@strawberry.type(description="Another operation of the instance is not over.")
class OperationInProgress(MutationError):
    operation: Operation = strawberry.field(description="That operation.")


@strawberry.type(description="The instance's status does not allow it.")
class InvalidTransition(MutationError):
    current: str = strawberry.field(description="The status it has.")
    allowed: list[str] = strawberry.field(description="The statuses it could go to.")


@strawberry.type(description="What was tried in one region and why it was refused.")
class PlacementRefusal:
    region: str = strawberry.field(description="The region's code.")
    billing_mode: BillingMode | None = strawberry.field(description="How it would have been paid.")
    code: str = strawberry.field(description="Why, as a word.")
    message: str = strawberry.field(description="Why, as a sentence.")


@strawberry.type(description="No region can serve this now.")
class NoCapacity(MutationError):
    attempts: list[PlacementRefusal] = strawberry.field(description="Each region and what was wrong with it.")


@strawberry.type(description="The instance has changed since you last saw it.")
class VersionConflict(MutationError):
    current_version: int = strawberry.field(description="The version it has now.")


@strawberry.type(description="The operation is over, or past the point where it could be called off.")
class NotCancellable(MutationError):
    operation: Operation = strawberry.field(description="The operation as it is.")


@strawberry.type(description="The request as a whole was refused.")
class Refusal(MutationError):
    pass


@strawberry.interface(description="What every mutation answers with.")
class Payload:
    errors: list[MutationError] = strawberry.field(
        description="Why it was refused; empty when it was accepted.", default_factory=list["MutationError"]
    )

    def emptied(self) -> Self:
        """What is told of a rehearsal: what was wrong. The rest has never been."""
        return type(self)(errors=self.errors)


ALL_ERRORS: list[type[MutationError]] = [
    ValidationError,
    NotFoundError,
    OperationInProgress,
    InvalidTransition,
    NoCapacity,
    VersionConflict,
    NotCancellable,
    Refusal,
]


class RefusalsAsErrors(FieldExtension):
    """Catches what the domain refuses and answers with the payload's `errors`, so that no resolver holds a `try`.

    With `validateOnly` the resolver runs all the same, on a database in which nothing stays written.
    """

    def apply(self, field: StrawberryField) -> None:
        self._payload: Any = field.type

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        if not getattr(kwargs.get("input"), "validate_only", False):
            return await self._answer(next_, source, info, **kwargs)
        with info.context.rehearsing():
            payload: Payload = await self._answer(next_, source, info, **kwargs)
        return payload.emptied()

    async def _answer(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:
        try:
            return await next_(source, info, **kwargs)
        except errors.Refused as refused:
            return self._payload(errors=await errors_of(refused, info))


async def errors_of(refused: errors.Refused, info: Info) -> Sequence[MutationError]:
    """A refusal as GraphQL tells it."""
    path = list(refused.path)
    match refused:
        case errors.Invalid():
            return [
                ValidationError(code=problem.code, message=problem.message, path=list(problem.path))
                for problem in refused.problems
            ]
        case errors.NotFound():
            return [NotFoundError(code=refused.code, message=refused.message, path=path)]
        case errors.OperationInProgress():
            async with info.context.read() as session:
                row = await session.get_one(tables.Operation, refused.operation_id)
            return [
                OperationInProgress(code=refused.code, message=refused.message, path=path, operation=Operation.of(row))
            ]
        case errors.IllegalMove():
            return [
                InvalidTransition(
                    code=refused.code,
                    message=refused.message,
                    path=path,
                    current=refused.current,
                    allowed=list(refused.allowed),
                )
            ]
        case errors.VersionConflict():
            return [
                VersionConflict(code=refused.code, message=refused.message, path=path, current_version=refused.current)
            ]
        case errors.NotCancellable():
            async with info.context.read() as session:
                row = await session.get_one(tables.Operation, refused.operation_id)
            return [NotCancellable(code=refused.code, message=refused.message, path=path, operation=Operation.of(row))]
        case errors.NoCapacity():
            attempts = [
                PlacementRefusal(
                    region=attempt.region,
                    billing_mode=BillingMode.of(attempt.billing_mode),
                    code=attempt.code,
                    message=attempt.message,
                )
                for attempt in refused.attempts
            ]
            return [NoCapacity(code=refused.code, message=refused.message, path=path, attempts=attempts)]
        case _:
            kind = ValidationError if path else Refusal
            return [kind(code=refused.code, message=refused.message, path=path)]
