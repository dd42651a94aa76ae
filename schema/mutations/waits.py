"""Mutation: updateWait."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, MutationInput
from schema.permissions import mutation
from schema.types.market.wait import WaitInput
from schema.types.operation import Operation
from server.instances.commands.update_wait import WaitChange, update_wait


@strawberry.input(description="Another end or priority of a wait for capacity; give at least one of them.")
class UpdateWaitInput(MutationInput):
    operation_id: strawberry.ID = strawberry.field(description="Id of the operation that waits.")
    wait: WaitInput | None = strawberry.field(default=None, description="New end of the wait, counted from now.")
    priority: int | None = strawberry.field(
        default=None, description="New priority, 0 to 100. Its place among equal ones stays."
    )


@strawberry.type(description="The operation with its new wait.")
class UpdateWaitPayload(Payload):
    operation: Operation | None = strawberry.field(default=None, description="The operation.")


@strawberry.type
class WaitMutations:
    @mutation(
        "Change how long an operation waits for capacity, or its priority. It must have been requested "
        "with `onNoCapacity`."
    )
    async def update_wait(self, info: Info, input: Annotated[UpdateWaitInput, Input]) -> UpdateWaitPayload:
        operation_id = ids.parse(ids.OPERATION, input.operation_id, ("input", "operationId"))
        wait = input.wait
        change = WaitChange(wait and wait.length, wait and wait.end, input.priority)
        async with info.context.write() as session:
            operation = await update_wait(session, operation_id, change, by=info.context.caller)
        return UpdateWaitPayload(operation=Operation.of(operation))
