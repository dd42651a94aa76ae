"""Mutations: syncFleet, adoptInstance, clearCache, clearExpiredCache."""

from typing import Annotated

import strawberry

from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, MutationInput
from schema.permissions import Requires, RequiresServerAdmin, RequiresWholeProject, mutation
from schema.types.fleet import SyncReport
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.enums import Role
from server.errors import NotFound
from server.instances import operations
from server.instances.commands.adopt import AdoptDraft, adopt_instance


@strawberry.input(description="Options of the comparison.")
class SyncFleetInput(MutationInput):
    pass


@strawberry.input(description="Options of the clean-up.")
class ClearExpiredCacheInput(MutationInput):
    pass


@strawberry.type(description="Result of the comparison.")
class SyncFleetPayload(Payload):
    report: SyncReport | None = strawberry.field(default=None, description="Differences found and corrected.")


@strawberry.input(description="The provider machine to adopt.")
class AdoptInstanceInput(MutationInput):
    novita_id: str = strawberry.field(description="The provider's id of the machine.")
    name: str | None = strawberry.field(
        default=None, description="Name of the new instance. Default: the machine's name at the provider."
    )


@strawberry.type(description="The instance created for the adopted machine.")
class AdoptInstancePayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The new instance, STARTING or EXITED.")
    operation: Operation | None = strawberry.field(
        default=None, description="Operation that brings it to READY; null if the machine is stopped."
    )


@strawberry.input(description="The cache to clear.")
class ClearCacheInput(MutationInput):
    name: str = strawberry.field(description="Cache name, as in `cacheStats`.")


@strawberry.type(description="Number of cleared entries.")
class ClearCachePayload(Payload):
    cleared: int = strawberry.field(default=0, description="Number of entries removed.")


@strawberry.type
class FleetMutations:
    @mutation(
        "Compare the project's instances with the provider now and correct those that differ. "
        "Not for tokens with `ownInstancesOnly`.",
        Requires(Role.OPERATOR),
        RequiresWholeProject(),
    )
    async def sync_fleet(self, info: Info, input: Annotated[SyncFleetInput | None, Input] = None) -> SyncFleetPayload:
        if info.context.is_validate_only:
            return SyncFleetPayload()
        report = await info.context.services.provider_reader.sync(by=info.context.caller)
        return SyncFleetPayload(report=SyncReport.of(report))

    @mutation(
        "Adopt a machine of the provider account as an instance. Nothing is changed at the provider. "
        "Needs the role ADMIN of the project `default`.",
        RequiresServerAdmin(),
    )
    async def adopt_instance(self, info: Info, input: Annotated[AdoptInstanceInput, Input]) -> AdoptInstancePayload:
        draft = AdoptDraft(novita_id=input.novita_id, name=input.name)
        services = info.context.services
        instance = await adopt_instance(
            services.database, services.provider_reader, draft, by=info.context.caller, cipher=services.cipher
        )
        if info.context.is_validate_only:
            return AdoptInstancePayload()
        async with info.context.read() as session:
            operation = await operations.open_operation(session, instance.id)
        return AdoptInstancePayload(
            instance=Instance.of(instance), operation=None if operation is None else Operation.of(operation)
        )

    @mutation("Clear one cache. Needs the role ADMIN of the project `default`.", RequiresServerAdmin())
    async def clear_cache(self, info: Info, input: Annotated[ClearCacheInput, Input]) -> ClearCachePayload:
        caches = info.context.services.caches
        if input.name not in caches.names:
            raise NotFound("cache", ("input", "name"))
        if info.context.is_validate_only:
            return ClearCachePayload()
        return ClearCachePayload(cleared=await caches.clear(input.name) or 0)

    @mutation(
        "Remove expired entries from all caches. Needs the role ADMIN of the project `default`.", RequiresServerAdmin()
    )
    async def clear_expired_cache(
        self, info: Info, input: Annotated[ClearExpiredCacheInput | None, Input] = None
    ) -> ClearCachePayload:
        if info.context.is_validate_only:
            return ClearCachePayload()
        return ClearCachePayload(cleared=await info.context.services.caches.clear_expired())
