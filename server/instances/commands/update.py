"""Accepts an update: most values are changed at once, ports and disk by a job at the provider."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import now
from server.db.database import Database
from server.db.tables import Instance
from server.enums import InstanceStatus, OperationKind, OperationStatus
from server.errors import IllegalTransition, Invalid, Problem
from server.idempotency import IdempotentRequest, key_problems, requested_fields
from server.instances import operations, transitions
from server.instances.commands.create import NAME_INDEX, name_taken
from server.instances.commands.lifecycle import Target, lock_target
from server.instances.commands.revert import end_attempt
from server.instances.drafts import Port, label_problems, name_problems, port_problems, webhook_problems
from server.instances.idempotency import Accepted, run_once
from server.instances.limits.of_token import policy_for
from server.instances.limits.policy import read_policy, refuse_idle_without_gpu
from server.instances.limits.spec import Lifetime, LifetimeChange, read, refuse_near_deadline
from server.instances.limits.steps import seconds_left
from server.instances.recovery import incident
from server.instances.recovery.spec import RecoveryChange, volume_problems
from server.instances.status import TRANSITIONS, VERBS, has_machine, refuse_illegal
from server.queue.enqueue import enqueue
from server.queue.kinds import UpdateInstance
from server.spend.admission import Want, admit, token_of_run
from server.spend.ledger import CostBasis
from server.ssrf import PrivateAddresses

LARGEST_DISK = 1000


@dataclass(frozen=True, slots=True)
class Receiver:
    """The webhook's URL; None removes the webhook."""

    url: str | None


@dataclass(frozen=True, slots=True)
class UpdateDraft:
    """The new values; `None` leaves a value as it is. `rootfs_size_gb` is the new total size."""

    FIRST_FIELDS: ClassVar = frozenset(["name", "labels", "ports", "rootfs_size_gb", "expected_version"])
    name: str | None = None
    labels: Mapping[str, str] | None = None
    ports: tuple[Port, ...] | None = None
    rootfs_size_gb: int | None = None
    webhook: Receiver | None = None
    lifetime: LifetimeChange | None = None
    recovery: RecoveryChange | None = None
    expected_version: int | None = None
    idempotency_key: str | None = None

    def check(self, private_addresses: PrivateAddresses) -> None:
        """Raise Invalid with every problem of the request itself."""
        problems = list(self._problems())
        if self.webhook is not None:
            found = webhook_problems(self.webhook.url, private_addresses)
            problems += [replace(each, path=("input", "webhook", "url")) for each in found]
        if problems:
            raise Invalid(problems)

    def _problems(self) -> Iterator[Problem]:
        changes = (self.name, self.labels, self.ports, self.rootfs_size_gb, self.webhook, self.lifetime, self.recovery)
        if all(each is None for each in changes):
            yield Problem("NOTHING_TO_UPDATE", "Give at least one value to change.", ("input",))
        if self.name is not None:
            yield from name_problems(self.name, ("input", "name"))
        yield from label_problems(self.labels or {})
        yield from port_problems(self.ports or ())
        if self.rootfs_size_gb is not None and not 10 <= self.rootfs_size_gb <= LARGEST_DISK:
            yield Problem("INVALID_ROOTFS_SIZE", "The root disk has 10 to 1000 GB.", ("input", "rootfsSizeGb"))
        if self.lifetime is not None and self.lifetime.limits is not None:
            yield from self.lifetime.limits.problems(("input", "lifetime", "set"), at=now())
        if self.recovery is not None and self.recovery.recovery is not None:
            yield from self.recovery.recovery.problems(("input", "recovery", "set"))
        yield from key_problems(self.idempotency_key)


async def update_instance(
    database: Database,
    target: Target,
    draft: UpdateDraft,
    *,
    by: Caller,
    private_addresses: PrivateAddresses = PrivateAddresses.OFF,
) -> Accepted:
    """One operation for all changes. It has already succeeded if the provider has nothing to do."""
    draft.check(private_addresses)
    fields = requested_fields(replace(draft, idempotency_key=None)) | target.identity
    request = IdempotentRequest.of(by, draft.idempotency_key, "updateInstance", fields)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        return await _write(session, target, operation_id, draft, by=by)

    try:
        return await run_once(database, request, write)
    except IntegrityError as error:
        if NAME_INDEX in str(error.orig):
            raise name_taken() from None
        raise


async def _write(
    session: AsyncSession, target: Target, operation_id: UUID, draft: UpdateDraft, *, by: Caller
) -> Accepted:
    instance = await lock_target(session, target, by, draft.expected_version)
    if draft.recovery is not None and draft.recovery.recovery is None:
        instance = await end_attempt(session, instance, by=by.token_id)
    await operations.refuse_second(session, instance.id)
    refuse_illegal(VERBS[OperationKind.UPDATE], instance)
    remote_changes = _remote_changes(draft, instance)
    operation = await operations.begin(
        session, instance, OperationKind.UPDATE, by=by.token_id, id=operation_id, wanted=remote_changes
    )
    local_changes: dict[str, Any] = {}
    if draft.name is not None:
        local_changes["name"] = draft.name
    if draft.labels is not None:
        local_changes["labels"] = dict(draft.labels)
        if draft.lifetime is None:
            await _admit(session, instance, draft, None if instance.lifetime is None else read(instance.lifetime))
    if draft.webhook is not None:
        local_changes |= {"webhook_url": draft.webhook.url, "webhook_disabled_at": None}
    if draft.lifetime is not None:
        limits = draft.lifetime.limits
        # A run that was accepted before counts from there: a later deadline must not stretch it.
        begun_at = instance.run_accepted_at or now()
        policy_for(await read_policy(session, by.project_id), by).refuse(limits, at=begun_at)
        path = ("input", "lifetime", "set")
        refuse_near_deadline(limits, path, at=now())
        refuse_idle_without_gpu(limits, has_gpu=instance.gpu_count > 0, path=path)
        await _admit(session, instance, draft, limits)
        local_changes["lifetime"] = None if limits is None else limits.to_json()
    if draft.recovery is not None:
        local_changes |= _recovery_changes(draft.recovery, instance)
    cause = transitions.Cause(operation.id, by.token_id)
    instance = await transitions.update(session, instance.id, cause=cause, **local_changes)
    if remote_changes:
        await enqueue(
            session,
            UpdateInstance(instance.id, operation.id),
            project_id=instance.project_id,
            instance_id=instance.id,
        )
        return Accepted(instance, operation)
    finished = await operations.finish(session, operation.id, OperationStatus.SUCCEEDED)
    return Accepted(instance, finished or operation)


def _recovery_changes(change: RecoveryChange, instance: Instance) -> dict[str, Any]:
    """Its removal ends what is going on."""
    path = ("input", "recovery", "set")
    if instance.volumes and (problems := list(volume_problems(change.recovery, instance.region, path))):
        raise Invalid(problems)
    if change.recovery is not None:
        return {"recovery": change.recovery.to_json()}
    reason = None if instance.status_reason == incident.RECOVERING else instance.status_reason
    return {"recovery": None, "recovery_state": None, "status_reason": reason}


async def _admit(session: AsyncSession, instance: Instance, draft: UpdateDraft, limits: Lifetime | None) -> None:
    """Refuse a machine that is paid for and may run longer, or moves to another scope by its labels, if there is too
    little left for that."""
    if CostBasis.of(instance).is_paid is False:
        return
    moment = now()
    before = None if instance.lifetime is None else read(instance.lifetime)
    seconds, counted = (seconds_left(instance, each, at=moment) for each in (limits, before))
    price = instance.price_per_hour_e5 or 0
    payer = await token_of_run(session, instance.id)
    want = Want(
        instance.project_id,
        payer,
        instance.labels if draft.labels is None else dict(draft.labels),
        price,
        seconds,
        instance.gpu_count,
        counted_s=counted,
        counted_labels=instance.labels,
    )
    await admit(session, want)


def _remote_changes(draft: UpdateDraft, instance: Instance) -> dict[str, Any]:
    """The values that the provider has to change."""
    remote_changes: dict[str, Any] = {}
    if draft.ports is not None:
        ports = [asdict(port) for port in draft.ports]
        if ports != instance.ports:
            remote_changes["ports"] = ports
    if draft.rootfs_size_gb is not None and draft.rootfs_size_gb < instance.rootfs_size_gb:
        message = f"A disk can only grow; it has {instance.rootfs_size_gb} GB."
        raise Invalid([Problem("INVALID_ROOTFS_SIZE", message, ("input", "rootfsSizeGb"))])
    if draft.rootfs_size_gb is not None and draft.rootfs_size_gb > instance.rootfs_size_gb:
        remote_changes["rootfs_size_gb"] = draft.rootfs_size_gb
    if remote_changes and not has_machine(instance):
        status = InstanceStatus(instance.status)
        message = "The provider has no machine for it, so only its name, labels and webhook can be changed."
        raise IllegalTransition("INSTANCE_NOT_UPDATABLE", message, current=status, allowed=sorted(TRANSITIONS[status]))
    return remote_changes
