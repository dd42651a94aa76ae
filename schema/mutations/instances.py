"""What callers can ask of instances. Open, delegate, translate."""

from typing import Annotated

import strawberry

from schema import ids
from schema.accepted import log_accepted
from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires
from schema.inputs import KEY, VERSION, KeyValueInput, MoneyInput, MutationInput, PortInput, are_unique, mapping
from schema.types.instance import Instance
from schema.types.money import MICROS_PER_E5
from schema.types.operation import Operation
from schema.types.probe import HealthCheckInput
from server.errors import Problem
from server.instances import create, delete, drafts
from server.words import Billing, Role


@strawberry.input(one_of=True, description="What an instance is made from.")
class InstanceSource:
    template_id: strawberry.ID | None = strawberry.field(
        default=strawberry.UNSET, description="A template of the provider's: image, ports, environment, command, disk."
    )
    image: str | None = strawberry.field(default=strawberry.UNSET, description="A container image, such as nginx:1.27.")


@strawberry.input(description="The instance to make. Say from what with exactly one of source, templateId and image.")
class CreateInstanceInput(MutationInput):
    name: str = strawberry.field(description="1 to 255 characters, unique among the instances that are not deleted.")
    product_name: str = strawberry.field(description="The product, such as RTX 4090 24GB.")
    source: InstanceSource | None = strawberry.field(default=None, description="What it is made from.")
    template_id: strawberry.ID | None = strawberry.field(
        default=None, description="A template of the provider's: short for `source: {templateId: ...}`."
    )
    image: str | None = strawberry.field(
        default=None, description="A container image, such as nginx:1.27: short for `source: {image: ...}`."
    )
    registry_auth_id: strawberry.ID | None = strawberry.field(
        default=None, description="A stored registry auth for a private image, in place of the template's."
    )
    gpu_count: int = strawberry.field(default=1, description="1 to 8.")
    rootfs_size_gb: int | None = strawberry.field(
        default=None, description="Root disk, 10 to 1000 GB; without it the template's, but at least 60."
    )
    region: str | None = strawberry.field(default=None, description="The region to try first, such as AS-SGP-02.")
    regions: list[str] | None = strawberry.field(
        default=None, description="Regions to try after it, in this order; without it the server's own."
    )
    billing: Billing = strawberry.field(default=Billing.SPOT_THEN_ON_DEMAND, description="How to pay.")
    max_hourly_price: MoneyInput | None = strawberry.field(default=None, description="The most it may cost an hour.")
    env: list[KeyValueInput] | None = strawberry.field(
        default=None, description="Environment variables, at most 100; they win over the template's."
    )
    ports: list[PortInput] | None = strawberry.field(
        default=None, description="Ports to expose, at most 15, in place of the template's."
    )
    command: str | None = strawberry.field(default=None, description="What to run, in place of the template's.")
    labels: list[KeyValueInput] | None = strawberry.field(default=None, description="Your own notes, at most 64.")
    health_check: HealthCheckInput | None = strawberry.field(
        default=None, description="How it is checked before it is READY."
    )
    webhook_url: str | None = strawberry.field(
        default=None, description="Where its events are sent, signed: http or https, on the public internet."
    )
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def to_draft(self) -> drafts.CreateDraft:
        price = self.max_hourly_price
        unreadable: list[Problem] = []
        if price is not None and price.currency != "USD":
            path = ("input", "maxHourlyPrice", "currency")
            unreadable.append(Problem("INVALID_MAX_HOURLY_PRICE", "The provider bills in USD.", path))
        if not are_unique(self.env or []):
            unreadable.append(Problem("INVALID_ENV", "A name is given twice.", ("input", "env")))
        if not are_unique(self.labels or []):
            unreadable.append(Problem("INVALID_LABEL", "A name is given twice.", ("input", "labels")))
        template_id, image = self.template_id, self.image
        if self.source is not None:
            if template_id is not None or image is not None:
                message = "Give exactly one of source, templateId and image."
                unreadable.append(Problem("INVALID_SOURCE", message, ("input", "source")))
            template_id = None if self.source.template_id is strawberry.UNSET else self.source.template_id
            image = None if self.source.image is strawberry.UNSET else self.source.image
        return drafts.CreateDraft(
            name=self.name,
            product_name=self.product_name,
            template_id=None if template_id is None else str(template_id),
            image=image,
            registry_auth_id=None if self.registry_auth_id is None else str(self.registry_auth_id),
            gpu_count=self.gpu_count,
            rootfs_size_gb=self.rootfs_size_gb,
            region=self.region,
            regions=tuple(self.regions or ()),
            billing=self.billing,
            max_hourly_price_e5=None if price is None else price.amount_micros // MICROS_PER_E5,
            env=None if self.env is None else mapping(self.env),
            ports=None if self.ports is None else tuple(drafts.Port(port.port, port.type) for port in self.ports),
            command=self.command,
            labels=mapping(self.labels or []),
            health_check=(self.health_check or HealthCheckInput()).to_draft(),
            webhook_url=self.webhook_url,
            idempotency_key=self.idempotency_key,
            unreadable=tuple(unreadable),
        )


@strawberry.type(description="The instance that was accepted; it is being made.")
class CreateInstancePayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance, CREATING.")
    operation: Operation | None = strawberry.field(default=None, description="Follow it to its end.")
    replayed: bool = strawberry.field(
        default=False, description="Whether the same idempotency key had been accepted before."
    )


@strawberry.input(description="The instance to remove.")
class DeleteInstanceInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The instance that will be removed.")
class DeleteInstancePayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance, DELETING.")
    operation: Operation | None = strawberry.field(default=None, description="Follow it to its end.")
    replayed: bool = strawberry.field(
        default=False, description="Whether the same idempotency key had been accepted before."
    )


@strawberry.type
class InstanceMutations:
    @strawberry.mutation(
        description="Ask for an instance. The answer comes at once; follow the operation, or subscribe.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def create_instance(self, info: Info, input: Annotated[CreateInstanceInput, Input]) -> CreateInstancePayload:
        services = info.context.services
        accepted = await create.create_instance(
            services.database,
            services.catalog,
            input.to_draft(),
            by=info.context.caller,
            defaults=create.Defaults(
                regions=services.settings.default_regions,
                estimated_ready_time=services.settings.estimated_ready_time,
                inside=services.settings.allow_private_webhooks,
            ),
        )
        log_accepted(accepted, info)
        return CreateInstancePayload(
            instance=Instance.of(accepted.instance),
            operation=Operation.of(accepted.operation),
            replayed=accepted.replayed,
        )

    @strawberry.mutation(
        description="Remove an instance in whatever status; what is under way is superseded.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def delete_instance(self, info: Info, input: Annotated[DeleteInstanceInput, Input]) -> DeleteInstancePayload:
        instance_id = ids.read(ids.INSTANCE, input.id, ("input", "id"))
        accepted = await delete.accept_delete(
            info.context.services.database,
            instance_id,
            by=info.context.caller,
            key=input.idempotency_key,
            expected_version=input.expected_version,
        )
        log_accepted(accepted, info)
        return DeleteInstancePayload(
            instance=Instance.of(accepted.instance),
            operation=Operation.of(accepted.operation),
            replayed=accepted.replayed,
        )
