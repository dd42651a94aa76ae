"""Mutations of private networks and prewarmed images."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import KEY, Input, MutationInput
from schema.mutations.account import REPLAYED, editor_of
from schema.permissions import mutation
from schema.types.account import Network, Prewarm
from server.account.networks import create_network, delete_network, update_network
from server.account.prewarms import PrewarmDraft, delete_prewarm, prewarm_image, update_prewarm


@strawberry.input(description="The private network to create.")
class CreateNetworkInput(MutationInput):
    name: str = strawberry.field(description="Name, 1 to 30 characters.")
    region: str = strawberry.field(description="Region with `supportsNetworks`, such as AS-SGP-02.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The new network.")
class CreateNetworkPayload(Payload):
    network: Network | None = strawberry.field(default=None, description="The network; null if deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The private network to rename.")
class UpdateNetworkInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the network.")
    name: str = strawberry.field(description="New name, 1 to 30 characters.")


@strawberry.type(description="The changed network.")
class UpdateNetworkPayload(Payload):
    network: Network | None = strawberry.field(default=None, description="The network after the change.")


@strawberry.input(description="The private network to delete.")
class DeleteNetworkInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the network.")


@strawberry.type(description="The deleted network.")
class DeleteNetworkPayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the network.")


@strawberry.input(description="The image to fetch to a region in advance.")
class PrewarmImageInput(MutationInput):
    image: str = strawberry.field(description="Container image, such as nginx:1.27.")
    region: str = strawberry.field(description="Region, such as AS-SGP-02.")
    product_names: list[str] = strawberry.field(description="Products whose nodes fetch it, 1 to 100.")
    registry_auth_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a registry credential for a private image."
    )
    note: str | None = strawberry.field(default=None, description="Your own note, at most 2047 characters.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The prewarmed image.")
class PrewarmImagePayload(Payload):
    prewarm: Prewarm | None = strawberry.field(default=None, description="The task; null if deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The note of a prewarmed image to change.")
class UpdatePrewarmInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the prewarmed image.")
    note: str = strawberry.field(description="New note, at most 2047 characters.")


@strawberry.type(description="The changed task.")
class UpdatePrewarmPayload(Payload):
    prewarm: Prewarm | None = strawberry.field(default=None, description="The task after the change.")


@strawberry.input(description="The prewarmed image to delete.")
class DeletePrewarmInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the prewarmed image.")


@strawberry.type(description="The deleted task.")
class DeletePrewarmPayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the prewarmed image.")


@strawberry.type
class NetworkMutations:
    @mutation("Create a private network in a region.")
    async def create_network(self, info: Info, input: Annotated[CreateNetworkInput, Input]) -> CreateNetworkPayload:
        services = info.context.services
        network, replayed = await create_network(
            services.account, name=input.name, region=input.region, key=input.idempotency_key, by=info.context.caller
        )
        shown = None if network is None else Network.of(network, await services.catalog.regions())
        return CreateNetworkPayload(network=shown, replayed=replayed)

    @mutation("Rename a private network.")
    async def update_network(self, info: Info, input: Annotated[UpdateNetworkInput, Input]) -> UpdateNetworkPayload:
        services, novita_id = info.context.services, ids.provider_id(ids.NETWORK, input.id)
        network = await update_network(services.account, novita_id, name=input.name, by=await editor_of(info))
        shown = None if network is None else Network.of(network, await services.catalog.regions())
        return UpdateNetworkPayload(network=shown)

    @mutation("Delete a private network. Refused while instances are in it.")
    async def delete_network(self, info: Info, input: Annotated[DeleteNetworkInput, Input]) -> DeleteNetworkPayload:
        novita_id = ids.provider_id(ids.NETWORK, input.id)
        await delete_network(info.context.services.account, novita_id, by=await editor_of(info))
        return DeleteNetworkPayload(deleted_id=input.id)

    @mutation("Fetch an image to the nodes of a region in advance, so that instances start sooner.")
    async def prewarm_image(self, info: Info, input: Annotated[PrewarmImageInput, Input]) -> PrewarmImagePayload:
        services, auth_id = info.context.services, input.registry_auth_id
        draft = PrewarmDraft(
            image=input.image,
            region=input.region,
            product_names=tuple(input.product_names),
            registry_auth_id=None if auth_id is None else ids.provider_id(ids.REGISTRY_AUTH, auth_id),
            note=input.note,
        )
        task, replayed = await prewarm_image(services.account, draft, key=input.idempotency_key, by=info.context.caller)
        shown = None if task is None else Prewarm.of(task, await services.catalog.regions())
        return PrewarmImagePayload(prewarm=shown, replayed=replayed)

    @mutation("Change the note of a prewarmed image.")
    async def update_prewarm(self, info: Info, input: Annotated[UpdatePrewarmInput, Input]) -> UpdatePrewarmPayload:
        services, novita_id = info.context.services, ids.provider_id(ids.PREWARM, input.id)
        task = await update_prewarm(services.account, novita_id, note=input.note, by=await editor_of(info))
        shown = None if task is None else Prewarm.of(task, await services.catalog.regions())
        return UpdatePrewarmPayload(prewarm=shown)

    @mutation("Delete a prewarmed image from the nodes.")
    async def delete_prewarm(self, info: Info, input: Annotated[DeletePrewarmInput, Input]) -> DeletePrewarmPayload:
        novita_id = ids.provider_id(ids.PREWARM, input.id)
        await delete_prewarm(info.context.services.account, novita_id, by=await editor_of(info))
        return DeletePrewarmPayload(deleted_id=input.id)
