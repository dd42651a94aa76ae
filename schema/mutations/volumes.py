"""Mutations of network volumes."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import KEY, Input, MutationInput
from schema.mutations.account import REPLAYED
from schema.permissions import RequiresServerAdmin, mutation
from schema.types.volume import Volume
from server.account.volumes import adopt_volume, create_volume, delete_volume, update_volume


@strawberry.input(description="The volume to create.")
class CreateVolumeInput(MutationInput):
    name: str = strawberry.field(description="Name, 1 to 255 characters, unique among the project's volumes.")
    region: str = strawberry.field(description="Region code, such as AS-SGP-02; it must support volumes.")
    size_gb: int = strawberry.field(description="Size, 10 to 10240 GB.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The accepted volume, being created.")
class CreateVolumePayload(Payload):
    volume: Volume | None = strawberry.field(default=None, description="The volume; null if it was deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The volume to change.")
class UpdateVolumeInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the volume.")
    name: str | None = strawberry.field(default=None, description="New name; default: unchanged.")
    size_gb: int | None = strawberry.field(
        default=None, description="New size, at least the present one, at most 10240 GB; default: unchanged."
    )


@strawberry.type(description="The changed volume.")
class UpdateVolumePayload(Payload):
    volume: Volume | None = strawberry.field(default=None, description="The volume after the change.")


@strawberry.input(description="The volume to delete.")
class DeleteVolumeInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the volume.")


@strawberry.type(description="The volume, being deleted.")
class DeleteVolumePayload(Payload):
    volume: Volume | None = strawberry.field(default=None, description="The volume, DELETING until it is gone.")


@strawberry.input(description="The provider's volume to adopt.")
class AdoptVolumeInput(MutationInput):
    novita_id: str = strawberry.field(description="The provider's id of the volume.")
    name: str | None = strawberry.field(default=None, description="Name; default: its name at the provider.")


@strawberry.type(description="The adopted volume.")
class AdoptVolumePayload(Payload):
    volume: Volume | None = strawberry.field(default=None, description="The new volume of the project.")


@strawberry.type
class VolumeMutations:
    @mutation("Create a network volume. Returns at once; it is AVAILABLE a moment later. Billed until deleted.")
    async def create_volume(self, info: Info, input: Annotated[CreateVolumeInput, Input]) -> CreateVolumePayload:
        volume, replayed = await create_volume(
            info.context.services.account,
            name=input.name,
            region=input.region,
            size_gb=input.size_gb,
            key=input.idempotency_key,
            by=info.context.caller,
        )
        return CreateVolumePayload(volume=None if volume is None else Volume.of(volume), replayed=replayed)

    @mutation("Rename or enlarge a network volume. Its data stays; it never shrinks.")
    async def update_volume(self, info: Info, input: Annotated[UpdateVolumeInput, Input]) -> UpdateVolumePayload:
        volume_id = ids.parse(ids.VOLUME, input.id, ("input", "id"))
        volume = await update_volume(
            info.context.services.account, volume_id, name=input.name, size_gb=input.size_gb, by=info.context.caller
        )
        return UpdateVolumePayload(volume=Volume.of(volume))

    @mutation("Delete a network volume with its data. Refused while an instance has it.")
    async def delete_volume(self, info: Info, input: Annotated[DeleteVolumeInput, Input]) -> DeleteVolumePayload:
        volume_id = ids.parse(ids.VOLUME, input.id, ("input", "id"))
        volume = await delete_volume(info.context.services.database, volume_id, by=info.context.caller)
        return DeleteVolumePayload(volume=Volume.of(volume))

    @mutation(
        "Adopt a volume of the provider account that no project has. Nothing is changed at the provider. "
        "Needs the role ADMIN of the project `default`.",
        RequiresServerAdmin(),
    )
    async def adopt_volume(self, info: Info, input: Annotated[AdoptVolumeInput, Input]) -> AdoptVolumePayload:
        account = info.context.services.account
        volume = await adopt_volume(account, input.novita_id, name=input.name, by=info.context.caller)
        return AdoptVolumePayload(volume=Volume.of(volume))
