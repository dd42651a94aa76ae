"""Accepting an update: name, labels and webhook at once, because they are ours; ports and disk by the provider."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.engine import Database
from server.db.tables import Instance
from server.errors import IllegalMove, Invalid, Problem
from server.guard import Inside
from server.instances import moves, operations
from server.instances.accept import locked_for
from server.instances.create import NAME_INDEX, name_taken
from server.instances.drafts import Port, label_problems, name_problems, port_problems, webhook_problems
from server.instances.idempotency import Accepted, Asked, key_problems, once
from server.instances.lifecycle import MOVES
from server.instances.verbs import VERBS, refuse_illegal
from server.queue.enqueue import enqueue
from server.queue.kinds import UpdateInstance
from server.words import InstanceStatus, OperationKind, OperationStatus

LARGEST_DISK = 1000


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where events shall be sent; None: nowhere."""

    url: str | None


@dataclass(frozen=True, slots=True)
class UpdateDraft:
    """What shall be different; `None` leaves it as it is. `rootfs_size_gb` is the whole, not what is added."""

    name: str | None = None
    labels: Mapping[str, str] | None = None
    ports: tuple[Port, ...] | None = None
    rootfs_size_gb: int | None = None
    webhook: Receiver | None = None
    expected_version: int | None = None
    idempotency_key: str | None = None

    def check(self, inside: Inside) -> None:
        """Raise Invalid with everything that is wrong in itself."""
        problems = list(self._problems())
        if self.webhook is not None:
            found = webhook_problems(self.webhook.url, inside)
            problems += [replace(each, path=("input", "webhook", "url")) for each in found]
        if problems:
            raise Invalid(problems)

    def _problems(self) -> Iterator[Problem]:
        if all(each is None for each in (self.name, self.labels, self.ports, self.rootfs_size_gb, self.webhook)):
            yield Problem("NOTHING_TO_UPDATE", "Say what shall be different.", ("input",))
        if self.name is not None:
            yield from name_problems(self.name, ("input", "name"))
        yield from label_problems(self.labels or {})
        yield from port_problems(self.ports or ())
        if self.rootfs_size_gb is not None and not 10 <= self.rootfs_size_gb <= LARGEST_DISK:
            yield Problem("INVALID_ROOTFS_SIZE", "The root disk has 10 to 1000 GB.", ("input", "rootfsSizeGb"))
        yield from key_problems(self.idempotency_key)


async def update_instance(
    database: Database, instance_id: UUID, draft: UpdateDraft, *, by: Caller, inside: Inside = Inside.OFF
) -> Accepted:
    """One operation for all of it. Where the provider has nothing to do, it is over when the answer comes."""
    draft.check(inside)
    fields = asdict(draft) | {"id": instance_id}
    del fields["idempotency_key"]
    if draft.webhook is None:
        del fields["webhook"]  # the same words as before there was such a field: keys of that time still fit
    asked = Asked.of(by, draft.idempotency_key, "updateInstance", fields)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        return await _write(session, instance_id, operation_id, draft, by=by)

    try:
        return await once(database, asked, write)
    except IntegrityError as error:
        if NAME_INDEX in str(error.orig):
            raise name_taken() from None
        raise


async def _write(
    session: AsyncSession, instance_id: UUID, operation_id: UUID, draft: UpdateDraft, *, by: Caller
) -> Accepted:
    instance = await locked_for(session, instance_id, by, draft.expected_version)
    refuse_illegal(VERBS[OperationKind.UPDATE], instance)
    wanted = _for_the_provider(draft, instance)
    operation = await operations.begin(
        session, instance, OperationKind.UPDATE, by=by.token_id, id=operation_id, wanted=wanted
    )
    ours: dict[str, Any] = {}
    if draft.name is not None:
        ours["name"] = draft.name
    if draft.labels is not None:
        ours["labels"] = dict(draft.labels)
    if draft.webhook is not None:
        ours |= {"webhook_url": draft.webhook.url, "webhook_disabled_at": None}
    cause = moves.Cause(operation.id, by.token_id)
    instance = await moves.note(session, instance.id, cause=cause, **ours)
    if wanted:
        await enqueue(
            session,
            UpdateInstance(instance.id, operation.id),
            project_id=instance.project_id,
            instance_id=instance.id,
        )
        return Accepted(instance, operation)
    finished = await operations.finish(session, operation.id, OperationStatus.SUCCEEDED)
    return Accepted(instance, finished or operation)


def _for_the_provider(draft: UpdateDraft, instance: Instance) -> dict[str, Any]:
    """What has to be asked of the provider: only what differs."""
    wanted: dict[str, Any] = {}
    if draft.ports is not None:
        ports = [asdict(port) for port in draft.ports]
        if ports != instance.ports:
            wanted["ports"] = ports
    if draft.rootfs_size_gb is not None and draft.rootfs_size_gb < instance.rootfs_size_gb:
        message = f"A disk can only grow; it has {instance.rootfs_size_gb} GB."
        raise Invalid([Problem("INVALID_ROOTFS_SIZE", message, ("input", "rootfsSizeGb"))])
    if draft.rootfs_size_gb is not None and draft.rootfs_size_gb > instance.rootfs_size_gb:
        wanted["rootfs_size_gb"] = draft.rootfs_size_gb
    if wanted and instance.novita_id is None:
        status = InstanceStatus(instance.status)
        message = "The provider has no machine for it, so only its name and labels can be changed."
        raise IllegalMove("INSTANCE_NOT_UPDATABLE", message, current=status, allowed=sorted(MOVES[status]))
    return wanted
