"""Mutation: cancelOperation."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import RefusalsAsErrors
from schema.inputs import KEY, Input, MutationInput
from schema.mutations.payloads import InstancePayload
from schema.permissions import Requires
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.enums import Role
from server.instances.commands import cancel


@strawberry.input(description="The operation to cancel.")
class CancelOperationInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the operation.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The cancelled operation.")
class CancelOperationPayload(InstancePayload):
    clean_up: Operation | None = strawberry.field(
        default=None,
        description="The DELETE operation that removes what a cancelled create left at the provider, if anything.",
    )


@strawberry.type
class OperationMutations:
    @strawberry.mutation(
        description="Cancel an operation. CREATE: until it ends; the machine is removed and the instance becomes "
        "DELETED. START, STOP, RESTART, MIGRATE, UPDATE: until the provider has been called; the "
        "instance returns to its previous status. DELETE can't be cancelled. Otherwise the error is "
        "NOT_CANCELLABLE.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def cancel_operation(
        self, info: Info, input: Annotated[CancelOperationInput, Input]
    ) -> CancelOperationPayload:
        operation_id = ids.parse(ids.OPERATION, input.id, ("input", "id"))
        cancelled = await cancel.cancel_operation(
            info.context.services.database, operation_id, by=info.context.caller, key=input.idempotency_key
        )
        return CancelOperationPayload(
            instance=Instance.of(cancelled.instance),
            operation=Operation.of(cancelled.operation),
            clean_up=None if cancelled.clean_up is None else Operation.of(cancelled.clean_up),
            replayed=cancelled.replayed,
        )
