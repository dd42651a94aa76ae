"""What callers can ask of the fleet as a whole, and of the caches."""

from typing import Annotated

import strawberry

from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires, RunsServer
from schema.inputs import MutationInput
from schema.types.fleet import SyncReport
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.errors import NotFound
from server.instances import operations
from server.instances.adopt import AdoptDraft
from server.words import Role


@strawberry.input(description="How to compare.")
class SyncFleetInput(MutationInput):
    pass


@strawberry.input(description="How to throw out.")
class ClearExpiredCacheInput(MutationInput):
    pass


@strawberry.type(description="What the comparison came to.")
class SyncFleetPayload(Payload):
    report: SyncReport | None = strawberry.field(default=None, description="What was found and done.")


@strawberry.input(description="The machine to take over.")
class AdoptInstanceInput(MutationInput):
    novita_id: str = strawberry.field(description="The provider's id of it.")
    name: str | None = strawberry.field(default=None, description="Its name from now on; without it, its own.")


@strawberry.type(description="The instance that the machine is from now on.")
class AdoptInstancePayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance: STARTING, or EXITED.")
    operation: Operation | None = strawberry.field(
        default=None, description="Follows it to READY; null when it had exited."
    )


@strawberry.input(description="The cache to empty.")
class ClearCacheInput(MutationInput):
    name: str = strawberry.field(description="As `cacheStats` calls it.")


@strawberry.type(description="What was forgotten.")
class ClearCachePayload(Payload):
    cleared: int = strawberry.field(default=0, description="How many values were forgotten.")


@strawberry.type
class FleetMutations:
    @strawberry.mutation(
        description="Compare the project's instances with the provider now, and bring them to what it says.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def sync_fleet(self, info: Info, input: Annotated[SyncFleetInput | None, Input] = None) -> SyncFleetPayload:
        if info.context.is_rehearsal:
            return SyncFleetPayload()
        report = await info.context.services.watch.sync(by=info.context.caller)
        return SyncFleetPayload(report=SyncReport.of(report))

    @strawberry.mutation(
        description="Take over a machine of the account that is no instance yet. Nothing is changed at the provider. "
        "Needs the role ADMIN of the project `default`.",
        extensions=[RunsServer(), RefusalsAsErrors()],
    )
    async def adopt_instance(self, info: Info, input: Annotated[AdoptInstanceInput, Input]) -> AdoptInstancePayload:
        draft = AdoptDraft(novita_id=input.novita_id, name=input.name)
        instance = await info.context.services.watch.adopt(
            info.context.services.database, draft, by=info.context.caller
        )
        if info.context.is_rehearsal:
            return AdoptInstancePayload()
        async with info.context.read() as session:
            operation = await operations.open_operation(session, instance.id)
        return AdoptInstancePayload(
            instance=Instance.of(instance), operation=None if operation is None else Operation.of(operation)
        )

    @strawberry.mutation(
        description="Empty one cache. Needs the role ADMIN of the project `default`.",
        extensions=[RunsServer(), RefusalsAsErrors()],
    )
    async def clear_cache(self, info: Info, input: Annotated[ClearCacheInput, Input]) -> ClearCachePayload:
        caches = info.context.services.caches
        if input.name not in caches.names:
            raise NotFound("cache", ("input", "name"))
        if info.context.is_rehearsal:
            return ClearCachePayload()
        return ClearCachePayload(cleared=await caches.clear(input.name) or 0)

    @strawberry.mutation(
        description="Throw out of all caches what is no longer believed. Needs the role ADMIN of the project "
        "`default`.",
        extensions=[RunsServer(), RefusalsAsErrors()],
    )
    async def clear_expired_cache(
        self, info: Info, input: Annotated[ClearExpiredCacheInput | None, Input] = None
    ) -> ClearCachePayload:
        if info.context.is_rehearsal:
            return ClearCachePayload()
        return ClearCachePayload(cleared=await info.context.services.caches.clear_expired())
