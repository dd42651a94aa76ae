"""Bulk mutations: each instance is accepted or refused on its own and has its own result."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Self
from uuid import UUID

import strawberry
from graphql import GraphQLError
from sqlalchemy.ext.asyncio import AsyncSession

from schema import ids
from schema.context import Info
from schema.errors import MutationError, Payload, errors_of
from schema.filters import InstanceFilter
from schema.inputs import KEY, Input, MutationInput
from schema.mutations.payloads import AcceptedInstance
from schema.permissions import mutation
from server.enums import OperationKind
from server.errors import Invalid, Problem, Refused
from server.idempotency import IdempotentRequest, key_problems
from server.instances.commands.delete import accept_delete
from server.instances.commands.lifecycle import Target, accept
from server.instances.idempotency import Accepted, reserve_for_many
from server.instances.queries.bulk import INSTANCES_MAX, find_expected

CONCURRENCY = 4  # database connections per request: a bulk of 100 must not block other requests

Verb = Callable[[UUID, str | None], Awaitable[Accepted]]


@strawberry.input(
    description="Instances to change together: `ids`, or `filter` with `expectedCount`. At most 100 at a time."
)
class InstancesInput(MutationInput):
    ids: list[strawberry.ID] | None = strawberry.field(
        default=None, description="Ids of instances, 1 to 100. Duplicates are processed once."
    )
    filter: InstanceFilter | None = strawberry.field(
        default=None, description="All instances that match now; at most 100."
    )
    expected_count: int | None = strawberry.field(
        default=None,
        description="How many instances the filter matches, 0 to 100; required with `filter`. With another number the "
        "request is refused as a whole with COUNT_DIFFERS, which has the present one.",
    )
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="Result for one instance of a bulk request.")
class InstanceResult(AcceptedInstance):
    instance_id: strawberry.ID = strawberry.field(description="Id of the instance, as given.")
    errors: list[MutationError] = strawberry.field(
        description="Reasons why this instance was refused; empty if accepted.", default_factory=list["MutationError"]
    )


@strawberry.type
class ResultsPayload(Payload):
    results: list[InstanceResult] = strawberry.field(
        description="One result per instance; empty if the whole request was refused.",
        default_factory=list["InstanceResult"],
    )

    def errors_only(self) -> Self:
        results = [InstanceResult(instance_id=each.instance_id, errors=each.errors) for each in self.results]
        return type(self)(errors=self.errors, results=results)


@strawberry.type(description="One result per instance, in the order of `ids`, or oldest first for a filter.")
class StopInstancesPayload(ResultsPayload):
    pass


@strawberry.type(description="One result per instance, in the order of `ids`, or oldest first for a filter.")
class DeleteInstancesPayload(ResultsPayload):
    pass


@strawberry.type
class BulkMutations:
    @mutation("Stop several instances, by id or by a filter. Each is accepted or refused on its own.")
    async def stop_instances(self, info: Info, input: Annotated[InstancesInput, Input]) -> StopInstancesPayload:
        async def stop(instance_id: UUID, key: str | None) -> Accepted:
            database, caller = info.context.services.database, info.context.caller
            return await accept(database, OperationKind.STOP, Target(instance_id), by=caller, asked_key=key)

        return StopInstancesPayload(results=await _each(info, input, "stopInstances", stop))

    @mutation("Delete several instances, in any status, by id or by a filter. Each is accepted or refused on its own.")
    async def delete_instances(self, info: Info, input: Annotated[InstancesInput, Input]) -> DeleteInstancesPayload:
        async def delete(instance_id: UUID, key: str | None) -> Accepted:
            database, caller = info.context.services.database, info.context.caller
            return await accept_delete(database, Target(instance_id), by=caller, asked_key=key)

        return DeleteInstancesPayload(results=await _each(info, input, "deleteInstances", delete))


async def _each(info: Info, input: InstancesInput, mutation: str, verb: Verb) -> list[InstanceResult]:
    problems = [*key_problems(input.idempotency_key), *_target_problems(input)]
    if problems:
        raise Invalid(problems)
    key, wanted = input.idempotency_key, await _decide(info, input, mutation)
    places = asyncio.Semaphore(CONCURRENCY)

    async def one(id: strawberry.ID) -> InstanceResult:
        async with places:
            try:
                instance_id = ids.parse(ids.INSTANCE, id, ("input", "ids", str(wanted.index(id))))
                accepted = await verb(instance_id, None if key is None else f"{key} {id}")
            except Refused as refused:
                return InstanceResult(instance_id=id, errors=list(await errors_of(refused, info)))
        return InstanceResult.of(accepted, info, instance_id=id)

    distinct = list(dict.fromkeys(wanted))
    results = dict(zip(distinct, await asyncio.gather(*map(one, distinct)), strict=True))
    return [results[id] for id in wanted]


def _target_problems(input: InstancesInput) -> Iterator[Problem]:
    if (input.ids is None) == (input.filter is None):
        yield Problem("INVALID_TARGET", "Give either `ids` or `filter`.", ("input", "ids"))
    if input.ids is not None and not 1 <= len(input.ids) <= INSTANCES_MAX:
        yield Problem("INVALID_IDS", f"Give 1 to {INSTANCES_MAX} ids.", ("input", "ids"))
    is_in_range = input.expected_count is not None and 0 <= input.expected_count <= INSTANCES_MAX
    if input.filter is not None and not is_in_range:
        message = f"A filter needs the number of instances that you expect, 0 to {INSTANCES_MAX}."
        yield Problem("INVALID_EXPECTED_COUNT", message, ("input", "expectedCount"))
    if input.filter is None and input.expected_count is not None:
        yield Problem("INVALID_EXPECTED_COUNT", "It belongs to `filter`.", ("input", "expectedCount"))


async def _decide(info: Info, input: InstancesInput, mutation: str) -> list[strawberry.ID]:
    """The instances of the request. A request that is repeated with its key is about the same ones again."""
    database, caller = info.context.services.database, info.context.caller
    if input.filter is None:
        wanted = input.ids or []
        fields: dict[str, Any] = {"ids": sorted(set(wanted))}
        if input.idempotency_key is not None:
            request = IdempotentRequest.of(caller, input.idempotency_key, mutation, fields)
            await reserve_for_many(database, request, _no_instances)
        return wanted
    try:
        condition = input.filter.to_domain(caller)
    except GraphQLError as error:
        raise Invalid([Problem("INVALID_FILTER", error.message, ("input", "filter"))]) from None
    expected = input.expected_count or 0
    asked = {name: value for name, value in asdict(condition).items() if name != "owner_id"}  # that is the caller's
    fields = {"filter": asked, "expected_count": expected}
    request = IdempotentRequest.of(caller, input.idempotency_key, mutation, fields)

    async def decide(session: AsyncSession) -> list[UUID]:
        return await find_expected(session, condition, expected, project_id=caller.project_id)

    found = await reserve_for_many(database, request, decide)
    return [strawberry.ID(ids.format_id(ids.INSTANCE, each)) for each in found]


async def _no_instances(_session: AsyncSession) -> list[UUID]:
    return []  # they are in the request
