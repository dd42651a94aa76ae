"""Mutations: startInstance, stopInstance, restartInstance, migrateInstance, updateInstance."""

from datetime import timedelta
from typing import Annotated

import strawberry

from schema.context import Info
from schema.inputs import (
    KEY,
    VERSION,
    Input,
    InstanceInput,
    InstanceReference,
    KeyValueInput,
    MutationInput,
    PortInput,
    are_unique,
    mapping,
    target_of,
)
from schema.mutations.payloads import InstancePayload
from schema.permissions import mutation
from schema.types.health import HealthCheckInput
from schema.types.lifetime import LifetimeChange, LifetimeInput
from schema.types.machines.recovery import RecoveryChange, StartStep
from schema.types.market.wait import NoCapacityInput
from server.enums import OperationKind
from server.errors import Invalid, Problem
from server.instances import drafts
from server.instances.commands import update
from server.instances.commands.lifecycle import accept
from server.instances.drafts import StartDraft
from server.instances.idempotency import Accepted
from server.recovery.relocation import Wanted, highest_price


@strawberry.type(description="The instance, being started.")
class StartInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance, being stopped.")
class StopInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance, being restarted.")
class RestartInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance, being migrated.")
class MigrateInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance with its new name, labels and webhook; ports and disk follow.")
class UpdateInstancePayload(InstancePayload):
    pass


@strawberry.input(description="The instance to start. Give exactly one of `instance`, `id` and `name`.")
class StartInstanceInput(InstanceInput):
    health_check: HealthCheckInput | None = strawberry.field(
        default=None, description="New health check; replaces the stored one."
    )
    ready_timeout: timedelta | None = strawberry.field(
        default=None,
        description="How long the machine may take to run before the operation fails with READY_TIMEOUT: 60 to 86400 "
        "s. Default: the stored one.",
    )
    target_port: int | None = strawberry.field(
        default=None, description="The only port to check; overrides the one in healthCheck."
    )
    webhook_url: str | None = strawberry.field(default=None, description="New webhook URL.")
    lifetime: LifetimeInput | None = strawberry.field(
        default=None, description="New limits of its lifetime; they replace the stored ones."
    )
    steps: list[StartStep] = strawberry.field(
        default_factory=lambda: [StartStep.SAME],
        description="Ways to start it, tried in the order SAME, MIGRATE, RELOCATE until the provider accepts one.",
    )
    allow_data_loss: bool = strawberry.field(
        default=False,
        description="MIGRATE and RELOCATE lose the data on the machine's own disks; without true they are refused with "
        "DATA_LOSS_NOT_ALLOWED. Network volumes keep their data.",
    )
    on_no_capacity: NoCapacityInput | None = strawberry.field(
        default=None,
        description="What to do while the provider has no capacity to start it. Default: fail.",
    )


@strawberry.input(description="The instance to stop.")
class StopInstanceInput(InstanceInput):
    pass


@strawberry.input(description="The instance to restart.")
class RestartInstanceInput(InstanceInput):
    pass


@strawberry.input(description="The instance to migrate to another node of its region.")
class MigrateInstanceInput(InstanceInput):
    pass


@strawberry.input(one_of=True, description="Change of an instance's webhook.")
class WebhookChange:
    url: str | None = strawberry.field(
        default=strawberry.UNSET, description="New URL: http or https, publicly reachable."
    )
    remove: bool | None = strawberry.field(default=strawberry.UNSET, description="true: remove the webhook.")

    def to_draft(self) -> update.Receiver:
        if self.remove is False:
            message = "Omit `webhook` to keep it unchanged."
            raise Invalid([Problem("INVALID_WEBHOOK", message, ("input", "webhook", "remove"))])
        return update.Receiver(None if self.url is strawberry.UNSET else self.url)


@strawberry.input(description="Changes to an instance; omitted fields stay unchanged.")
class UpdateInstanceInput(MutationInput):
    instance: InstanceReference | None = strawberry.field(
        default=None, description="Id or present name of the instance. Give exactly one of `instance` and `id`."
    )
    id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of the instance; short for `instance: {id: ...}`."
    )
    name: str | None = strawberry.field(default=None, description="New name. Takes effect at once.")
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="New labels, at most 64; they replace all present ones. Takes effect at once."
    )
    ports: list[PortInput] | None = strawberry.field(
        default=None, description="New ports, at most 15; they replace all present ones. Applied by the provider."
    )
    rootfs_size_gb: int | None = strawberry.field(
        default=None,
        description="New total size of the root disk, at most 1000 GB; it can only grow. Applied by the provider.",
    )
    webhook: WebhookChange | None = strawberry.field(
        default=None, description="New webhook, or its removal. Takes effect at once."
    )
    lifetime: LifetimeChange | None = strawberry.field(
        default=None, description="New limits of its lifetime, or their removal. Takes effect at once."
    )
    recovery: RecoveryChange | None = strawberry.field(
        default=None, description="New recovery, or its removal, which also ends one in progress. Takes effect at once."
    )
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def to_draft(self) -> update.UpdateDraft:
        if not are_unique(self.labels or []):
            raise Invalid([Problem("INVALID_LABEL", "A name is given twice.", ("input", "labels"))])
        return update.UpdateDraft(
            name=self.name,
            labels=None if self.labels is None else mapping(self.labels),
            ports=None if self.ports is None else tuple(drafts.Port(port.port, port.type) for port in self.ports),
            rootfs_size_gb=self.rootfs_size_gb,
            webhook=None if self.webhook is None else self.webhook.to_draft(),
            lifetime=None if self.lifetime is None else self.lifetime.to_domain(),
            recovery=None if self.recovery is None else self.recovery.to_domain(),
            expected_version=self.expected_version,
            idempotency_key=self.idempotency_key,
        )


@strawberry.type
class LifecycleMutations:
    @mutation(
        "Start an EXITED instance. If the provider has no capacity, the operation fails with "
        "RESOURCE_CONSTRAINTS and the instance returns to EXITED; `steps` are other ways to start it. With RELOCATE, "
        "an instance whose machine is gone can be started as well."
    )
    async def start_instance(self, info: Info, input: Annotated[StartInstanceInput, Input]) -> StartInstancePayload:
        draft = StartDraft(
            health_check=None if input.health_check is None else input.health_check.to_draft(),
            webhook_url=input.webhook_url,
            target_port=input.target_port,
            ready_timeout=input.ready_timeout,
            lifetime=None if input.lifetime is None else input.lifetime.to_domain(),
            steps=tuple(input.steps),
            allow_data_loss=input.allow_data_loss,
            on_no_capacity=None if input.on_no_capacity is None else input.on_no_capacity.to_domain(),
        )
        draft.check(info.context.services.settings.allow_private_webhooks)
        accepted = await accept(
            info.context.services.database,
            OperationKind.START,
            input.target(),
            by=info.context.caller,
            key=input.idempotency_key,
            draft=draft,
            expected_version=input.expected_version,
            default_max_duration=info.context.services.settings.default_max_duration,
            highest_price=lambda instance: highest_price(
                info.context.services.catalog, instance, draft.steps, Wanted(within=info.context.caller.limits.regions)
            ),
        )
        return StartInstancePayload.of(accepted, info)

    @mutation(
        "Stop an instance that is RUNNING, HEALTH_CHECKING or READY, or FAILED with an existing "
        "machine. Its disk is kept and billed."
    )
    async def stop_instance(self, info: Info, input: Annotated[StopInstanceInput, Input]) -> StopInstancePayload:
        return StopInstancePayload.of(await _accept(info, OperationKind.STOP, input), info)

    @mutation("Restart an instance. A FAILED one is started again.")
    async def restart_instance(
        self, info: Info, input: Annotated[RestartInstanceInput, Input]
    ) -> RestartInstancePayload:
        return RestartInstancePayload.of(await _accept(info, OperationKind.RESTART, input), info)

    @mutation("Migrate an instance to another node of its region. Data on its local disks is lost.")
    async def migrate_instance(
        self, info: Info, input: Annotated[MigrateInstanceInput, Input]
    ) -> MigrateInstancePayload:
        return MigrateInstancePayload.of(await _accept(info, OperationKind.MIGRATE, input), info)

    @mutation(
        "Change an instance without a restart. Name, labels, webhook, lifetime and recovery change at "
        "once: if nothing else is given, the returned operation has SUCCEEDED. Ports and disk are applied by the "
        "provider."
    )
    async def update_instance(self, info: Info, input: Annotated[UpdateInstanceInput, Input]) -> UpdateInstancePayload:
        accepted = await update.update_instance(
            info.context.services.database,
            target_of(input.instance, id=input.id),
            input.to_draft(),
            by=info.context.caller,
            private_addresses=info.context.services.settings.allow_private_webhooks,
        )
        return UpdateInstancePayload.of(accepted, info)


async def _accept(info: Info, kind: OperationKind, input: InstanceInput) -> Accepted:
    return await accept(
        info.context.services.database,
        kind,
        input.target(),
        by=info.context.caller,
        key=input.idempotency_key,
        expected_version=input.expected_version,
    )
