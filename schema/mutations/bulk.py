"""Bulk mutations: each instance is accepted or refused on its own and has its own result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Self
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import MutationError, Payload, RefusalsAsErrors, errors_of
from schema.inputs import KEY, Input, MutationInput
from schema.mutations.payloads import AcceptedInstance
from schema.permissions import Requires
from server.enums import OperationKind, Role
from server.errors import Invalid, Problem, Refused
from server.instances.commands.delete import accept_delete
from server.instances.commands.lifecycle import Target, accept
from server.instances.idempotency import Accepted, IdempotentRequest, key_problems, reserve_for_many

MAX_IDS = 100
CONCURRENCY = 4  # database connections per request: a bulk of 100 must not block other requests

Verb = Callable[[UUID, str | None], Awaitable[Accepted]]


@strawberry.input(description="Instances to change together.")
class InstancesInput(MutationInput):
    ids: list[strawberry.ID] = strawberry.field(
        description="Ids of instances, 1 to 100. Duplicates are processed once."
    )
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="Result for one instance of a bulk request.")
class InstanceResult(AcceptedInstance):
    instance_id: strawberry.ID = strawberry.field(description="The id from the input.")
    errors: list[MutationError] = strawberry.field(
        description="Reasons why this instance was refused; empty if accepted.", default_factory=list["MutationError"]
    )


@strawberry.type
class ResultsPayload(Payload):
    results: list[InstanceResult] = strawberry.field(
        description="One result per id; empty if the whole request was refused.",
        default_factory=list["InstanceResult"],
    )

    def errors_only(self) -> Self:
        results = [InstanceResult(instance_id=each.instance_id, errors=each.errors) for each in self.results]
        return type(self)(errors=self.errors, results=results)


@strawberry.type(description="One result per id, in the order of the input.")
class StopInstancesPayload(ResultsPayload):
    pass


@strawberry.type(description="One result per id, in the order of the input.")
class DeleteInstancesPayload(ResultsPayload):
    pass


@strawberry.type
class BulkMutations:
    @strawberry.mutation(
        description="Stop several instances. Each is accepted or refused on its own.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def stop_instances(self, info: Info, input: Annotated[InstancesInput, Input]) -> StopInstancesPayload:
        async def stop(instance_id: UUID, key: str | None) -> Accepted:
            database, caller = info.context.services.database, info.context.caller
            return await accept(database, OperationKind.STOP, Target(instance_id), by=caller, asked_key=key)

        return StopInstancesPayload(results=await _each(info, input, "stopInstances", stop))

    @strawberry.mutation(
        description="Delete several instances, in any status. Each is accepted or refused on its own.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def delete_instances(self, info: Info, input: Annotated[InstancesInput, Input]) -> DeleteInstancesPayload:
        async def delete(instance_id: UUID, key: str | None) -> Accepted:
            database, caller = info.context.services.database, info.context.caller
            return await accept_delete(database, instance_id, by=caller, asked_key=key)

        return DeleteInstancesPayload(results=await _each(info, input, "deleteInstances", delete))


async def _each(info: Info, input: InstancesInput, mutation: str, verb: Verb) -> list[InstanceResult]:
    problems = list(key_problems(input.idempotency_key))
    if not 1 <= len(input.ids) <= MAX_IDS:
        problems.append(Problem("INVALID_IDS", f"Give 1 to {MAX_IDS} ids.", ("input", "ids")))
    if problems:
        raise Invalid(problems)
    key = input.idempotency_key
    if key is not None:
        request = IdempotentRequest.of(info.context.caller, key, mutation, {"ids": sorted(set(input.ids))})
        await reserve_for_many(info.context.services.database, request)
    places = asyncio.Semaphore(CONCURRENCY)

    async def one(id: strawberry.ID) -> InstanceResult:
        async with places:
            try:
                instance_id = ids.parse(ids.INSTANCE, id, ("input", "ids", str(input.ids.index(id))))
                accepted = await verb(instance_id, None if key is None else f"{key} {id}")
            except Refused as refused:
                return InstanceResult(instance_id=id, errors=list(await errors_of(refused, info)))
        return InstanceResult.of(accepted, info, instance_id=id)

    distinct = list(dict.fromkeys(input.ids))
    results = dict(zip(distinct, await asyncio.gather(*map(one, distinct)), strict=True))
    return [results[id] for id in input.ids]
