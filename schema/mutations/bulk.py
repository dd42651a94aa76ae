"""The same verb for many instances: each is accepted or refused by itself, and each has its own result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Self
from uuid import UUID

import strawberry

from schema import ids
from schema.accepted import log_accepted
from schema.arguments import Input
from schema.context import Info
from schema.errors import MutationError, Payload, RefusalsAsErrors, errors_of
from schema.guards import Requires
from schema.inputs import KEY, MutationInput
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.errors import Invalid, Problem, Refused
from server.instances.accept import Target, accept
from server.instances.delete import accept_delete
from server.instances.idempotency import Accepted, Asked, key_problems, reserve_for_many
from server.words import OperationKind, Role

MOST = 100
AT_ONCE = 4  # of the process's connections: a hundred stops must not keep everybody else waiting

Verb = Callable[[UUID, str | None], Awaitable[Accepted]]


@strawberry.input(description="Instances, and what is to be done with all of them.")
class InstancesInput(MutationInput):
    ids: list[strawberry.ID] = strawberry.field(description="1 to 100 ids. One that is named twice is done once.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="What became of one instance of many.")
class InstanceResult:
    id: strawberry.ID = strawberry.field(description="The id that was given.")
    instance: Instance | None = strawberry.field(default=None, description="The instance, as it is from now on.")
    operation: Operation | None = strawberry.field(default=None, description="Follow it to its end.")
    replayed: bool = strawberry.field(
        default=False, description="Whether the same idempotency key had been accepted before."
    )
    errors: list[MutationError] = strawberry.field(
        description="Why this one was refused; empty when it was accepted.", default_factory=list["MutationError"]
    )


@strawberry.type
class ResultsPayload(Payload):
    results: list[InstanceResult] = strawberry.field(
        description="What became of each; empty when the request as a whole was refused.",
        default_factory=list["InstanceResult"],
    )

    def emptied(self) -> Self:
        results = [InstanceResult(id=each.id, errors=each.errors) for each in self.results]
        return type(self)(errors=self.errors, results=results)


@strawberry.type(description="One result for each id that was given, in the same order.")
class StopInstancesPayload(ResultsPayload):
    pass


@strawberry.type(description="One result for each id that was given, in the same order.")
class DeleteInstancesPayload(ResultsPayload):
    pass


@strawberry.type
class BulkMutations:
    @strawberry.mutation(
        description="Stop many instances. One that can't be stopped does not keep the others from it.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def stop_instances(self, info: Info, input: Annotated[InstancesInput, Input]) -> StopInstancesPayload:
        async def stop(instance_id: UUID, key: str | None) -> Accepted:
            database, caller = info.context.services.database, info.context.caller
            return await accept(database, OperationKind.STOP, Target(instance_id), by=caller, asked_key=key)

        return StopInstancesPayload(results=await _each(info, input, "stopInstances", stop))

    @strawberry.mutation(
        description="Delete many instances, in whatever status. One that can't be deleted does not keep the others.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def delete_instances(self, info: Info, input: Annotated[InstancesInput, Input]) -> DeleteInstancesPayload:
        async def delete(instance_id: UUID, key: str | None) -> Accepted:
            database, caller = info.context.services.database, info.context.caller
            return await accept_delete(database, instance_id, by=caller, asked_key=key)

        return DeleteInstancesPayload(results=await _each(info, input, "deleteInstances", delete))


async def _each(info: Info, input: InstancesInput, mutation: str, verb: Verb) -> list[InstanceResult]:
    problems = list(key_problems(input.idempotency_key))
    if not 1 <= len(input.ids) <= MOST:
        problems.append(Problem("INVALID_IDS", f"Give 1 to {MOST} ids.", ("input", "ids")))
    if problems:
        raise Invalid(problems)
    key = input.idempotency_key
    if key is not None:
        asked = Asked.of(info.context.caller, key, mutation, {"ids": sorted(set(input.ids))})
        await reserve_for_many(info.context.services.database, asked)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(id: strawberry.ID) -> InstanceResult:
        async with places:
            try:
                instance_id = ids.read(ids.INSTANCE, id, ("input", "ids", str(input.ids.index(id))))
                accepted = await verb(instance_id, None if key is None else f"{key} {id}")
            except Refused as refused:
                return InstanceResult(id=id, errors=list(await errors_of(refused, info)))
        log_accepted(accepted, info)
        return InstanceResult(
            id=id,
            instance=Instance.of(accepted.instance),
            operation=Operation.of(accepted.operation),
            replayed=accepted.replayed,
        )

    distinct = list(dict.fromkeys(input.ids))
    results = dict(zip(distinct, await asyncio.gather(*map(one, distinct)), strict=True))
    return [results[id] for id in input.ids]
