"""What callers can ask of an operation."""

from typing import Annotated

import strawberry

from schema import ids
from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires
from schema.inputs import KEY, MutationInput
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.instances import cancel
from server.words import Role


@strawberry.input(description="The operation to cancel.")
class CancelOperationInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The operation that was cancelled.")
class CancelOperationPayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="Its instance, as it is from now on.")
    operation: Operation | None = strawberry.field(default=None, description="The operation, CANCELLED.")
    clean_up: Operation | None = strawberry.field(
        default=None, description="The delete that removes what a cancelled create had made so far, if anything."
    )
    replayed: bool = strawberry.field(
        default=False, description="Whether the same idempotency key had been accepted before."
    )


@strawberry.type
class OperationMutations:
    @strawberry.mutation(
        description="Call an operation off. A CREATE until it is over: what was made is removed, and the instance is "
        "DELETED. START, STOP, RESTART, MIGRATE and UPDATE until the provider has been asked: the instance is again "
        "what it was. A DELETE can't be cancelled. Anything else is NOT_CANCELLABLE.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def cancel_operation(
        self, info: Info, input: Annotated[CancelOperationInput, Input]
    ) -> CancelOperationPayload:
        operation_id = ids.read(ids.OPERATION, input.id, ("input", "id"))
        cancelled = await cancel.cancel_operation(
            info.context.services.database, operation_id, by=info.context.caller, key=input.idempotency_key
        )
        return CancelOperationPayload(
            instance=Instance.of(cancelled.instance),
            operation=Operation.of(cancelled.operation),
            clean_up=None if cancelled.clean_up is None else Operation.of(cancelled.clean_up),
            replayed=cancelled.replayed,
        )
