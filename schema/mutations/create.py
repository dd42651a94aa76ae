"""Mutations: createInstance, deleteInstance."""

from datetime import timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.inputs import (
    KEY,
    EnvVariableInput,
    Input,
    InstanceInput,
    KeyValueInput,
    MoneyInput,
    MutationInput,
    PortInput,
    ToolInput,
    VolumeMountInput,
    are_unique,
    mapping,
    stated_secrets,
)
from schema.mutations.payloads import InstancePayload
from schema.permissions import mutation
from schema.types.health import HealthCheckInput
from schema.types.lifetime import LifetimeInput
from schema.types.machines.recovery import RecoveryInput
from schema.types.market.wait import NoCapacityInput
from schema.types.money import MICROS_PER_E5
from server.conversion import convert
from server.enums import Billing, InstanceKind, PlacementOrder
from server.errors import Problem
from server.instances import drafts
from server.instances.commands import create, delete
from server.instances.tools import Tool
from server.volumes.draft import VolumeMount


@strawberry.input(one_of=True, description="Source of an instance: a template or an image.")
class InstanceSource:
    template_id: strawberry.ID | None = strawberry.field(
        default=strawberry.UNSET,
        description="Id of a provider template: image, ports, environment, command, disk, tools, lowest CUDA version.",
    )
    image: str | None = strawberry.field(default=strawberry.UNSET, description="Container image, such as nginx:1.27.")


@strawberry.input
class NewInstanceInput(MutationInput):
    """Of createInstance and of quote."""

    name: str = strawberry.field(description="Name, 1 to 255 characters, unique among instances that are not deleted.")
    product_name: str = strawberry.field(description="Product name, such as RTX 4090 24GB.")
    source: InstanceSource | None = strawberry.field(default=None, description="Template or image.")
    template_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a provider template; short for `source: {templateId: ...}`."
    )
    image: str | None = strawberry.field(
        default=None, description="Container image, such as nginx:1.27; short for `source: {image: ...}`."
    )
    registry_auth_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a stored registry credential for a private image; overrides the template's."
    )
    kind: InstanceKind = strawberry.field(
        default=InstanceKind.GPU,
        description="GPU, or CPU for a machine without one: name a CPU product, and leave gpuCount out.",
    )
    gpu_count: int = strawberry.field(default=1, description="Number of GPUs, 1 to 8; leave it out if the kind is CPU.")
    rootfs_size_gb: int | None = strawberry.field(
        default=None, description="Root disk, 10 to 1000 GB. Default: the template's, but at least 60."
    )
    region: str | None = strawberry.field(default=None, description="Region to try first, such as AS-SGP-02.")
    regions: list[str] | None = strawberry.field(
        default=None,
        description='Regions to try next, in order; "ANY" is every region. Default: the server\'s, or any.',
    )
    placement: PlacementOrder | None = strawberry.field(
        default=None,
        description="Order in which regions are tried. Default: PRICE if any region will do, else REGION_ORDER.",
    )
    billing: Billing = strawberry.field(default=Billing.SPOT_THEN_ON_DEMAND, description="Billing option.")
    max_hourly_price: MoneyInput | None = strawberry.field(
        default=None,
        description="Maximum price per hour of the whole instance, all GPUs together: 0.001 to 1000 USD. "
        "`{amountMicros: 350000}` is 0.35 USD.",
    )
    env: list[EnvVariableInput] | None = strawberry.field(
        default=None, description="Environment variables, at most 100; they override the template's."
    )
    ports: list[PortInput] | None = strawberry.field(
        default=None, description="Ports to expose, at most 15; they replace the template's."
    )
    command: str | None = strawberry.field(default=None, description="Start command; replaces the template's.")
    entrypoint: str | None = strawberry.field(
        default=None, description="Entrypoint, replaces the template's and the image's; empty: the image's."
    )
    tools: list[ToolInput] | None = strawberry.field(
        default=None, description="Tools to run beside the container; they replace the template's."
    )
    min_cuda_version: str | None = strawberry.field(
        default=None,
        description="Lowest CUDA version of the node's driver, such as 12.4; replaces the template's. GPU only.",
    )
    network_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of a private network; the instance is created in its region."
    )
    volumes: list[VolumeMountInput] | None = strawberry.field(
        default=None, description="Network volumes, at most 30; the instance is created in their region."
    )
    labels: list[KeyValueInput] | None = strawberry.field(default=None, description="Your own labels, at most 64.")
    health_check: HealthCheckInput | None = strawberry.field(
        default=None, description="Health check before the instance becomes READY."
    )
    ready_timeout: timedelta | None = strawberry.field(
        default=None,
        description="How long the machine may take to run before the operation fails with READY_TIMEOUT: 60 to 86400 "
        "s. Default: the server's INSTANCE_MAX_WAIT.",
    )
    webhook_url: str | None = strawberry.field(
        default=None,
        description="URL that receives the instance's events as signed webhooks: http or https, publicly reachable.",
    )
    lifetime: LifetimeInput | None = strawberry.field(
        default=None, description="Limits of its lifetime. Default: the project's, or none."
    )
    recovery: RecoveryInput | None = strawberry.field(
        default=None, description="How it comes back after a spot reclaim or the loss of its machine. Default: not."
    )
    on_no_capacity: NoCapacityInput | None = strawberry.field(
        default=None,
        description="What to do while no region has capacity. Default: refuse it.",
    )
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def to_draft(self) -> drafts.CreateDraft:
        return self._to_draft(quote_id=None, max_price_drift=0.0)

    def _to_draft(self, *, quote_id: str | None, max_price_drift: float) -> drafts.CreateDraft:
        price = self.max_hourly_price
        unreadable: list[Problem] = []
        if price is not None and price.currency != "USD":
            path = ("input", "maxHourlyPrice", "currency")
            unreadable.append(Problem("INVALID_MAX_HOURLY_PRICE", "The provider bills in USD.", path))
        if not are_unique(self.env or []):
            unreadable.append(Problem("INVALID_ENV", "A name is given twice.", ("input", "env")))
        if not are_unique(self.labels or []):
            unreadable.append(Problem("INVALID_LABEL", "A name is given twice.", ("input", "labels")))
        template_id, image, auth_id = self.template_id, self.image, self.registry_auth_id
        if self.source is not None:
            if template_id is not None or image is not None:
                message = "Give exactly one of source, templateId and image."
                unreadable.append(Problem("INVALID_SOURCE", message, ("input", "source")))
            template_id = None if self.source.template_id is strawberry.UNSET else self.source.template_id
            image = None if self.source.image is strawberry.UNSET else self.source.image
        return convert(
            drafts.CreateDraft,
            self,
            template_id=None if template_id is None else ids.provider_id(ids.TEMPLATE, template_id),
            image=image,
            registry_auth_id=None if auth_id is None else ids.provider_id(ids.REGISTRY_AUTH, auth_id),
            regions=tuple(self.regions or ()),
            max_hourly_price_e5=None if price is None else price.amount_micros // MICROS_PER_E5,
            env=None if self.env is None else mapping(self.env),
            secret_env=stated_secrets(self.env or []),
            ports=None if self.ports is None else tuple(drafts.Port(port.port, port.type) for port in self.ports),
            tools=None if self.tools is None else tuple(Tool.of(tool.name, tool.port) for tool in self.tools),
            network_id=None if self.network_id is None else ids.provider_id(ids.NETWORK, self.network_id),
            volumes=tuple(
                VolumeMount(ids.parse_or_unused(ids.VOLUME, volume.id), volume.mount_path)
                for volume in self.volumes or ()
            ),
            labels=mapping(self.labels or []),
            health_check=(self.health_check or HealthCheckInput()).to_draft(),
            lifetime=None if self.lifetime is None else self.lifetime.to_domain(),
            recovery=None if self.recovery is None else self.recovery.to_domain(),
            on_no_capacity=None if self.on_no_capacity is None else self.on_no_capacity.to_domain(),
            unreadable=tuple(unreadable),
            quote_id=quote_id,
            max_price_drift=max_price_drift,
        )


@strawberry.input(description="The instance to create. Give exactly one of source, templateId and image.")
class CreateInstanceInput(NewInstanceInput):
    quote_id: strawberry.ID | None = strawberry.field(
        default=None,
        description="Id of a quote for the same request: its region, billing mode and price are taken, or none "
        "(QUOTE_EXPIRED, QUOTE_MISMATCH, PRICE_DRIFTED).",
    )
    max_price_drift: float = strawberry.field(
        default=0.0, description="With quoteId: how far the price may be above the quoted one, 0 to 1; 0.05 is 5 %."
    )

    def to_draft(self) -> drafts.CreateDraft:
        return self._to_draft(quote_id=self.quote_id, max_price_drift=self.max_price_drift)


@strawberry.type(description="The accepted instance, being created.")
class CreateInstancePayload(InstancePayload):
    pass


@strawberry.input(description="The instance to delete.")
class DeleteInstanceInput(InstanceInput):
    pass


@strawberry.type(description="The instance, being deleted.")
class DeleteInstancePayload(InstancePayload):
    pass


@strawberry.type
class InstanceMutations:
    @mutation("Create an instance. Returns at once; follow the operation or subscribe to updates.")
    async def create_instance(self, info: Info, input: Annotated[CreateInstanceInput, Input]) -> CreateInstancePayload:
        services = info.context.services
        accepted = await create.create_instance(
            services.creates,
            services.catalog,
            input.to_draft(),
            by=info.context.caller,
            defaults=create.Defaults(
                regions=services.settings.default_regions,
                estimated_ready_time=services.settings.estimated_ready_time,
                private_addresses=services.settings.allow_private_webhooks,
                cipher=services.cipher,
                quote_key=services.seals.quote_key,
                max_duration=services.settings.default_max_duration,
            ),
        )
        return CreateInstancePayload.of(accepted, info)

    @mutation("Delete an instance in any status. An operation in progress is superseded.")
    async def delete_instance(self, info: Info, input: Annotated[DeleteInstanceInput, Input]) -> DeleteInstancePayload:
        accepted = await delete.accept_delete(
            info.context.services.database,
            input.target(),
            by=info.context.caller,
            key=input.idempotency_key,
            expected_version=input.expected_version,
        )
        return DeleteInstancePayload.of(accepted, info)
