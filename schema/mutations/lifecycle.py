"""What callers can ask of an instance that exists. Each answers at once; the operation tells the rest."""

from typing import Annotated, Self

import strawberry

from schema import ids
from schema.accepted import log_accepted
from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires
from schema.inputs import KEY, VERSION, KeyValueInput, MutationInput, PortInput, are_unique, mapping
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
    def of(cls, accepted: Accepted, info: Info) -> Self:
        log_accepted(accepted, info)
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


@strawberry.input(one_of=True, description="One instance: by its id or by its name.")
class InstanceReference:
    id: strawberry.ID | None = strawberry.field(default=strawberry.UNSET, description="Its id.")
    name: str | None = strawberry.field(
        default=strawberry.UNSET, description="Its name, among the instances that are not deleted."
    )


@strawberry.input(description="The instance to start. Say which with exactly one of `instance`, `id` and `name`.")
class StartInstanceInput(MutationInput):
    instance: InstanceReference | None = strawberry.field(default=None, description="Its id or its name.")
    id: strawberry.ID | None = strawberry.field(default=None, description="Its id: short for `instance: {id: ...}`.")
    name: str | None = strawberry.field(default=None, description="Its name: short for `instance: {name: ...}`.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    health_check: HealthCheckInput | None = strawberry.field(
        default=None, description="How it is checked from now on, in place of what was said before."
    )
    target_port: int | None = strawberry.field(
        default=None, description="The one port to check from now on; wins over the one in healthCheck."
    )
    webhook_url: str | None = strawberry.field(default=None, description="Where its events are sent from now on.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def target(self) -> Target:
        """Which one is meant; naming it in several ways, or in none, is refused."""
        given: list[tuple[str, strawberry.ID | str]] = [
            (name, value) for name, value in (("id", self.id), ("name", self.name)) if value is not None
        ]
        if self.instance is not None:
            given += [(name, value) for name, value in vars(self.instance).items() if value is not strawberry.UNSET]
        if len(given) != 1:
            message = "Give exactly one of the instance, its id and its name."
            raise Invalid([Problem("INVALID_TARGET", message, ID)])
        ((kind, value),) = given
        path = ("input", kind) if self.instance is None else ("input", "instance", kind)
        return Target(ids.read(ids.INSTANCE, value, path)) if kind == "id" else Target(name=value, path=path)


@strawberry.input(description="The instance to stop.")
class StopInstanceInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="The instance to restart.")
class RestartInstanceInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(description="The instance to move to another node of its region.")
class MigrateInstanceInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.input(one_of=True, description="Where an instance's events shall be sent.")
class WebhookChange:
    url: str | None = strawberry.field(
        default=strawberry.UNSET, description="To this receiver: http or https, on the public internet."
    )
    remove: bool | None = strawberry.field(default=strawberry.UNSET, description="true: nowhere any more.")

    def to_draft(self) -> update.Receiver:
        if self.remove is False:
            message = "Leave `webhook` out to keep it as it is."
            raise Invalid([Problem("INVALID_WEBHOOK", message, ("input", "webhook", "remove"))])
        return update.Receiver(None if self.url is strawberry.UNSET else self.url)


@strawberry.input(description="What shall be different about an instance; what is left out stays as it is.")
class UpdateInstanceInput(MutationInput):
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
    webhook: WebhookChange | None = strawberry.field(
        default=None, description="Another receiver of its events, or none. Changes at once."
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
    async def start_instance(self, info: Info, input: Annotated[StartInstanceInput, Input]) -> StartInstancePayload:
        draft = StartDraft(
            health_check=None if input.health_check is None else input.health_check.to_draft(),
            webhook_url=input.webhook_url,
            target_port=input.target_port,
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
        )
        return StartInstancePayload.of(accepted, info)

    @strawberry.mutation(
        description="Stop an instance that is RUNNING, HEALTH_CHECKING or READY, or FAILED with its machine still "
        "there. Its disk is kept, and costs.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def stop_instance(self, info: Info, input: Annotated[StopInstanceInput, Input]) -> StopInstancePayload:
        return StopInstancePayload.of(await _accept(info, OperationKind.STOP, input), info)

    @strawberry.mutation(
        description="Stop an instance and start it again at once. One that has FAILED is brought up again.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def restart_instance(
        self, info: Info, input: Annotated[RestartInstanceInput, Input]
    ) -> RestartInstancePayload:
        return RestartInstancePayload.of(await _accept(info, OperationKind.RESTART, input), info)

    @strawberry.mutation(
        description="Move an instance to another node of its region. What was written to its own disks is lost.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def migrate_instance(
        self, info: Info, input: Annotated[MigrateInstanceInput, Input]
    ) -> MigrateInstancePayload:
        return MigrateInstancePayload.of(await _accept(info, OperationKind.MIGRATE, input), info)

    @strawberry.mutation(
        description="Change an instance without restarting it. Name, labels and webhook change at once, and an "
        "update of nothing else has SUCCEEDED when the answer comes; ports and disk are asked of the provider.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def update_instance(self, info: Info, input: Annotated[UpdateInstanceInput, Input]) -> UpdateInstancePayload:
        instance_id = ids.read(ids.INSTANCE, input.id, ID)
        accepted = await update.update_instance(
            info.context.services.database,
            instance_id,
            input.to_draft(),
            by=info.context.caller,
            inside=info.context.services.settings.allow_private_webhooks,
        )
        return UpdateInstancePayload.of(accepted, info)


async def _accept(
    info: Info, kind: OperationKind, input: StopInstanceInput | RestartInstanceInput | MigrateInstanceInput
) -> Accepted:
    return await accept(
        info.context.services.database,
        kind,
        Target(ids.read(ids.INSTANCE, input.id, ID)),
        by=info.context.caller,
        key=input.idempotency_key,
        expected_version=input.expected_version,
    )
