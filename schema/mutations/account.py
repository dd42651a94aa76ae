"""Mutations of the provider account: registry auths and templates."""

from typing import Annotated, Any

import strawberry
from pydantic import SecretStr

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import KEY, Input, KeyValueInput, MutationInput, PortInput, ToolInput, are_unique, mapping
from schema.permissions import mutation
from schema.types.catalog import RegistryAuthType, Template
from server.account.objects import Editor
from server.account.registry_auths import RegistryAuthDraft, create_registry_auth, delete_registry_auth
from server.account.templates import TemplateFields, create_template, delete_template, update_template
from server.errors import Problem
from server.instances.drafts import Port
from server.instances.tools import Tool

REPLAYED = "Whether this is the result of an earlier request with the same key."


@strawberry.input(description="The registry credential to store.")
class CreateRegistryAuthInput(MutationInput):
    name: str = strawberry.field(description="Host name of the registry, or a label; 1 to 255 characters.")
    username: str = strawberry.field(description="User name, 1 to 255 characters.")
    password: str = strawberry.field(
        description="Password or token. It is passed on to the provider and never stored, logged or returned."
    )
    idempotency_key: str | None = strawberry.field(
        default=None, description=f"{KEY} The password is not compared with that of the first request."
    )


@strawberry.type(description="The stored credential, without its password.")
class CreateRegistryAuthPayload(Payload):
    registry_auth: RegistryAuthType | None = strawberry.field(
        default=None, description="The credential; null if it was deleted since."
    )
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The registry credential to delete.")
class DeleteRegistryAuthInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the credential.")


@strawberry.type(description="The deleted credential.")
class DeleteRegistryAuthPayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the credential.")


@strawberry.input
class TemplateInput(MutationInput):
    registry_auth_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a registry credential for a private image."
    )
    command: str | None = strawberry.field(default=None, description="Start command, at most 2047 characters.")
    entrypoint: str | None = strawberry.field(default=None, description="Entrypoint, at most 2047 characters.")
    rootfs_size_gb: int | None = strawberry.field(default=None, description="Root disk, 10 to 1000 GB.")
    ports: list[PortInput] | None = strawberry.field(
        default=None, description="Ports to expose, at most 10 of each type and 15 with the tools."
    )
    env: list[KeyValueInput] | None = strawberry.field(default=None, description="Environment variables, at most 100.")
    tools: list[ToolInput] | None = strawberry.field(default=None, description="Tools to run beside the container.")
    min_cuda_version: str | None = strawberry.field(default=None, description="Lowest CUDA version, such as 12.4.")
    readme: str | None = strawberry.field(default=None, description="Description, at most 102400 characters.")

    def _fields(self, **more: Any) -> TemplateFields:
        env_twice = Problem("INVALID_ENV", "A name is given twice.", ("input", "env"))
        auth_id = self.registry_auth_id
        return TemplateFields(
            registry_auth_id=None if auth_id is None else ids.provider_id(ids.REGISTRY_AUTH, auth_id),
            command=self.command,
            entrypoint=self.entrypoint,
            rootfs_size_gb=self.rootfs_size_gb,
            ports=None if self.ports is None else tuple(Port(port.port, port.type) for port in self.ports),
            env=None if self.env is None else mapping(self.env),
            tools=None if self.tools is None else tuple(Tool.of(tool.name, tool.port) for tool in self.tools),
            min_cuda_version=self.min_cuda_version,
            readme=self.readme,
            unreadable=() if are_unique(self.env or []) else (env_twice,),
            **more,
        )


@strawberry.input(description="The template to create. It is private to the account and belongs to the project.")
class CreateTemplateInput(TemplateInput):
    name: str = strawberry.field(description="Name, 1 to 255 characters.")
    image: str = strawberry.field(description="Container image, such as nginx:1.27.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def to_fields(self) -> TemplateFields:
        return self._fields(name=self.name, image=self.image)


@strawberry.type(description="The new template.")
class CreateTemplatePayload(Payload):
    template: Template | None = strawberry.field(default=None, description="The template; null if deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="What to change of a template. Fields that are left out stay; empty ones are removed.")
class UpdateTemplateInput(TemplateInput):
    id: strawberry.ID = strawberry.field(description="Id of the template.")
    name: str | None = strawberry.field(default=None, description="Name, 1 to 255 characters.")
    image: str | None = strawberry.field(default=None, description="Container image, such as nginx:1.27.")

    def to_fields(self) -> TemplateFields:
        return self._fields(name=self.name, image=self.image)


@strawberry.type(description="The changed template.")
class UpdateTemplatePayload(Payload):
    template: Template | None = strawberry.field(default=None, description="The template after the change.")


@strawberry.input(description="The template to delete.")
class DeleteTemplateInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the template.")


@strawberry.type(description="The deleted template.")
class DeleteTemplatePayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the template.")


@strawberry.type
class AccountMutations:
    @mutation("Store a credential for an image registry at the provider.")
    async def create_registry_auth(
        self, info: Info, input: Annotated[CreateRegistryAuthInput, Input]
    ) -> CreateRegistryAuthPayload:
        draft = RegistryAuthDraft(input.name, input.username, SecretStr(input.password), input.idempotency_key)
        auth, replayed = await create_registry_auth(info.context.services.account, draft, by=info.context.caller)
        return CreateRegistryAuthPayload(
            registry_auth=None if auth is None else RegistryAuthType.of(auth), replayed=replayed
        )

    @mutation("Delete a registry credential. Refused while an instance or template uses it.")
    async def delete_registry_auth(
        self, info: Info, input: Annotated[DeleteRegistryAuthInput, Input]
    ) -> DeleteRegistryAuthPayload:
        novita_id = ids.provider_id(ids.REGISTRY_AUTH, input.id)
        await delete_registry_auth(info.context.services.account, novita_id, by=await editor_of(info))
        return DeleteRegistryAuthPayload(deleted_id=input.id)

    @mutation("Create a template at the provider, checked like an instance that is created from it.")
    async def create_template(self, info: Info, input: Annotated[CreateTemplateInput, Input]) -> CreateTemplatePayload:
        template, replayed = await create_template(
            info.context.services.account, input.to_fields(), key=input.idempotency_key, by=info.context.caller
        )
        return CreateTemplatePayload(template=None if template is None else Template.of(template), replayed=replayed)

    @mutation("Change a template. Instances that were created from it stay as they are.")
    async def update_template(self, info: Info, input: Annotated[UpdateTemplateInput, Input]) -> UpdateTemplatePayload:
        novita_id = ids.provider_id(ids.TEMPLATE, input.id)
        template = await update_template(
            info.context.services.account, novita_id, input.to_fields(), by=await editor_of(info)
        )
        return UpdateTemplatePayload(template=None if template is None else Template.of(template))

    @mutation("Delete a template. Instances that were created from it stay.")
    async def delete_template(self, info: Info, input: Annotated[DeleteTemplateInput, Input]) -> DeleteTemplatePayload:
        novita_id = ids.provider_id(ids.TEMPLATE, input.id)
        await delete_template(info.context.services.account, novita_id, by=await editor_of(info))
        return DeleteTemplatePayload(deleted_id=input.id)


async def editor_of(info: Info) -> Editor:
    return Editor(info.context.caller, await info.context.is_server_admin())
