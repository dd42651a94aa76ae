"""Mutations: saveImage, cancelProviderJob, upgradeInstance."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import EnvVariableInput, Input, InstanceInput, MutationInput, are_unique, mapping, stated_secrets
from schema.mutations.payloads import InstancePayload
from schema.permissions import mutation
from schema.types.provider_job import ProviderJob
from server.account.provider_jobs import cancel_job
from server.errors import Invalid, Problem
from server.instances.commands.save_image import SaveImageDraft, save_image
from server.instances.commands.upgrade import UpgradeDraft, upgrade_instance


@strawberry.input(description="The instance to save as an image.")
class SaveImageInput(InstanceInput):
    image: str = strawberry.field(description="Name of the image to push, such as registry.example.com/me/work:1.")
    registry_auth_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a stored registry credential that may push the image."
    )


@strawberry.type(description="The instance, being saved as an image.")
class SaveImagePayload(InstancePayload):
    pass


@strawberry.input(description="The job of the provider to interrupt.")
class CancelProviderJobInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the job.")


@strawberry.type(description="The interrupted job.")
class CancelProviderJobPayload(Payload):
    job: ProviderJob | None = strawberry.field(default=None, description="The job after the change.")


@strawberry.input(description="New image and start settings of an instance; what is left out stays.")
class UpgradeInstanceInput(InstanceInput):
    image: str | None = strawberry.field(default=None, description="New container image, such as nginx:1.28.")
    registry_auth_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a stored registry credential for a private image."
    )
    env: list[EnvVariableInput] | None = strawberry.field(
        default=None, description="New environment variables, at most 100; they replace all present ones."
    )
    command: str | None = strawberry.field(default=None, description="New start command; empty: the image's.")
    entrypoint: str | None = strawberry.field(default=None, description="New entrypoint; empty: the image's.")

    def to_draft(self) -> UpgradeDraft:
        if not are_unique(self.env or []):
            raise Invalid([Problem("INVALID_ENV", "A name is given twice.", ("input", "env"))])
        auth_id = self.registry_auth_id
        return UpgradeDraft(
            image=self.image,
            registry_auth_id=None if auth_id is None else ids.provider_id(ids.REGISTRY_AUTH, auth_id),
            env=None if self.env is None else mapping(self.env),
            secret_env=stated_secrets(self.env or []),
            command=self.command,
            entrypoint=self.entrypoint,
            expected_version=self.expected_version,
            idempotency_key=self.idempotency_key,
        )


@strawberry.type(description="The instance, being reset with its new image and settings.")
class UpgradeInstancePayload(InstancePayload):
    pass


@strawberry.type
class ImageMutations:
    @mutation(
        "Save an EXITED instance as an image and push it to its registry. The operation has the action "
        "SAVE_IMAGE and ends with the provider's job. No other change is possible meanwhile, except a delete."
    )
    async def save_image(self, info: Info, input: Annotated[SaveImageInput, Input]) -> SaveImagePayload:
        services, auth_id = info.context.services, input.registry_auth_id
        accepted = await save_image(
            services.database,
            services.catalog,
            input.target(),
            SaveImageDraft(
                image=input.image,
                registry_auth_id=None if auth_id is None else ids.provider_id(ids.REGISTRY_AUTH, auth_id),
                expected_version=input.expected_version,
                idempotency_key=input.idempotency_key,
            ),
            by=info.context.caller,
        )
        return SaveImagePayload.of(accepted, info)

    @mutation(
        "Interrupt a job of the provider that saves an image; its operation then fails with "
        "IMAGE_SAVE_INTERRUPTED. A migration can't be interrupted."
    )
    async def cancel_provider_job(
        self, info: Info, input: Annotated[CancelProviderJobInput, Input]
    ) -> CancelProviderJobPayload:
        job_id = ids.provider_id(ids.PROVIDER_JOB, input.id)
        cancelled = await cancel_job(info.context.services.account, job_id, by=info.context.caller)
        return CancelProviderJobPayload(job=ProviderJob.of(cancelled))

    @mutation(
        "Change image and start settings of an instance on its machine, which is reset; ports and volumes "
        "stay. An EXITED instance is started. The operation has the action UPGRADE and ends when it is READY."
    )
    async def upgrade_instance(
        self, info: Info, input: Annotated[UpgradeInstanceInput, Input]
    ) -> UpgradeInstancePayload:
        services = info.context.services
        accepted = await upgrade_instance(
            services.database,
            services.catalog,
            input.target(),
            input.to_draft(),
            by=info.context.caller,
            cipher=services.cipher,
            default_max_duration=services.settings.default_max_duration,
        )
        return UpgradeInstancePayload.of(accepted, info)
