"""What callers can ask of an instance that exists. Each answers at once; the operation tells the rest."""

from typing import Self

import strawberry

from schema import ids
from schema.accepted import log_accepted
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires
from schema.inputs import KEY, KeyValueInput, PortInput, are_unique, mapping
from schema.types.instance import Instance
from schema.types.operation import Operation
from schema.types.probe import HealthCheckInput
from server.errors import Invalid, Problem
from server.instances import drafts, update
from server.instances.accept import Target, accept
from server.instances.idempotency import Accepted
from server.instances.start_draft import StartDraft
from server.words import OperationKind, Role

ID = ("input", "id")


@strawberry.type(description="What was accepted, and the operation to follow.")
class InstancePayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance, as it is from now on.")
    operation: Operation | None = strawberry.field(default=None, description="Follow it to its end.")
    replayed: bool = strawberry.field(
        default=False, description="Whether the same idempotency key had been accepted before."
    )

    @classmethod
    def of(cls, accepted: Accepted) -> Self:
        log_accepted(accepted)
        return cls(
            instance=Instance.of(accepted.instance),
            operation=Operation.of(accepted.operation),
            replayed=accepted.replayed,
        )


@strawberry.type(description="The instance that will be started.")
class StartInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance that will be stopped.")
class StopInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance that will be restarted.")
class RestartInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance that will be moved.")
class MigrateInstancePayload(InstancePayload):
    pass


@strawberry.type(description="The instance with its new name and labels; ports and disk follow.")
class UpdateInstancePayload(InstancePayload):
    pass


@strawberry.input(description="The instance to start: by its id or by its name, exactly one of them.")
class StartInstanceInput:
    id: strawberry.ID | None = strawberry.field(default=None, description="Its id.")
    name: str | None = strawberry.field(default=None, description="Its name.")
    health_check: HealthCheckInput | None = strawberry.field(
        default=None, description="How it is checked from now on, in place of what was said before."
    )
    target_port: int | None = strawberry.field(
        default=None, description="The one port to check from now on; wins over the one in healthCheck."
    )
    webhook_url: str | None = strawberry.field(default=None, description="Where its events are sent from now on.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="The instance to stop.")
class StopInstanceInput:
    id: strawberry.ID = strawberry.field(description="Its id.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="The instance to restart.")
class RestartInstanceInput:
    id: strawberry.ID = strawberry.field(description="Its id.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="The instance to move to another node of its region.")
class MigrateInstanceInput:
    id: strawberry.ID = strawberry.field(description="Its id.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="What shall be different about an instance; what is left out stays as it is.")
class UpdateInstanceInput:
    id: strawberry.ID = strawberry.field(description="Its id.")
    name: str | None = strawberry.field(default=None, description="Another name. Changes at once.")
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="All labels as they shall be, at most 64. They change at once."
    )
    ports: list[PortInput] | None = strawberry.field(
        default=None, description="All ports as they shall be, at most 15. Asked of the provider."
    )
    rootfs_size_gb: int | None = strawberry.field(
        default=None, description="The whole root disk, at most 1000 GB; it can only grow. Asked of the provider."
    )
    expected_version: int | None = strawberry.field(
        default=None, description="The version you last saw: if it is another one by now, nothing is changed."
    )
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def to_draft(self) -> update.UpdateDraft:
        if not are_unique(self.labels or []):
            raise Invalid([Problem("INVALID_LABEL", "A name is given twice.", ("input", "labels"))])
        return update.UpdateDraft(
            name=self.name,
            labels=None if self.labels is None else mapping(self.labels),
            ports=None if self.ports is None else tuple(drafts.Port(port.port, port.type) for port in self.ports),
            rootfs_size_gb=self.rootfs_size_gb,
            expected_version=self.expected_version,
            idempotency_key=self.idempotency_key,
        )


@strawberry.type
class LifecycleMutations:
    @strawberry.mutation(
        description="Start an instance that has EXITED. If the provider has no room for it, the operation fails with "
        "RESOURCE_CONSTRAINTS and the instance is EXITED again.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def start_instance(self, info: Info, input: StartInstanceInput) -> StartInstancePayload:
        target = Target(None if input.id is None else ids.read(ids.INSTANCE, input.id, ID), input.name)
        draft = StartDraft(
            health_check=None if input.health_check is None else input.health_check.to_draft(),
            webhook_url=input.webhook_url,
            target_port=input.target_port,
        )
        draft.check(info.context.services.settings.allow_private_webhooks)
        accepted = await accept(
            info.context.services.database,
            OperationKind.START,
            target,
            by=info.context.caller,
            key=input.idempotency_key,
            draft=draft,
        )
        return StartInstancePayload.of(accepted)

    @strawberry.mutation(
        description="Stop an instance that is RUNNING, HEALTH_CHECKING or READY, or FAILED with its machine still "
        "there. Its disk is kept, and costs.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def stop_instance(self, info: Info, input: StopInstanceInput) -> StopInstancePayload:
        target = Target(ids.read(ids.INSTANCE, input.id, ID))
        return StopInstancePayload.of(await _accept(info, OperationKind.STOP, target, input.idempotency_key))

    @strawberry.mutation(
        description="Stop an instance and start it again at once. One that has FAILED is brought up again.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def restart_instance(self, info: Info, input: RestartInstanceInput) -> RestartInstancePayload:
        target = Target(ids.read(ids.INSTANCE, input.id, ID))
        return RestartInstancePayload.of(await _accept(info, OperationKind.RESTART, target, input.idempotency_key))

    @strawberry.mutation(
        description="Move an instance to another node of its region. What was written to its own disks is lost.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def migrate_instance(self, info: Info, input: MigrateInstanceInput) -> MigrateInstancePayload:
        target = Target(ids.read(ids.INSTANCE, input.id, ID))
        return MigrateInstancePayload.of(await _accept(info, OperationKind.MIGRATE, target, input.idempotency_key))

    @strawberry.mutation(
        description="Change an instance without restarting it. Name and labels change at once, and an update of "
        "nothing else has SUCCEEDED when the answer comes; ports and disk are asked of the provider.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def update_instance(self, info: Info, input: UpdateInstanceInput) -> UpdateInstancePayload:
        instance_id = ids.read(ids.INSTANCE, input.id, ID)
        accepted = await update.update_instance(
            info.context.services.database, instance_id, input.to_draft(), by=info.context.caller
        )
        return UpdateInstancePayload.of(accepted)


async def _accept(info: Info, kind: OperationKind, target: Target, key: str | None) -> Accepted:
    return await accept(info.context.services.database, kind, target, by=info.context.caller, key=key)
