"""Mutations: cancelOperation, retryOperation."""

from dataclasses import replace
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.inputs import KEY, VERSION, Input, MutationInput
from schema.mutations.payloads import InstancePayload
from schema.permissions import mutation
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.instances.commands import cancel, retry
from server.recovery.relocation import Wanted, highest_price


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


@strawberry.input(description="The failed operation to try again.")
class RetryOperationInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the operation.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The instance, and the new operation that tries it again.")
class RetryOperationPayload(InstancePayload):
    pass


@strawberry.type
class OperationMutations:
    @mutation(
        "Cancel an operation. CREATE: until it ends; the machine is removed and the instance becomes "
        "DELETED. START, STOP, RESTART, MIGRATE, UPDATE: until the provider has been called; the "
        "instance returns to its previous status. DELETE can't be cancelled. Otherwise the error is "
        "NOT_CANCELLABLE."
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

    @mutation(
        "Try a failed CREATE, START or DELETE again under the same instance, as a new operation. A create "
        "whose machine exists is continued by a START of that machine; another machine is created only if there is "
        "none. Otherwise the error is OPERATION_NOT_RETRYABLE, or MACHINE_MAY_EXIST until that is known."
    )
    async def retry_operation(self, info: Info, input: Annotated[RetryOperationInput, Input]) -> RetryOperationPayload:
        operation_id = ids.parse(ids.OPERATION, input.id, ("input", "id"))
        accepted = await retry.retry_operation(
            info.context.services.database,
            operation_id,
            by=info.context.caller,
            key=input.idempotency_key,
            expected_version=input.expected_version,
            highest_price=lambda instance, failed, steps: highest_price(
                info.context.services.catalog,
                instance,
                steps,
                replace(Wanted.of(failed, within=info.context.caller.limits.regions), highest_price_e5=None),
            ),
        )
        return RetryOperationPayload.of(accepted, info)
