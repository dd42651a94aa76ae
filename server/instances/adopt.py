"""Taking over a machine that was made elsewhere: from then on it is an instance like any other."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import Instance
from server.errors import IllegalMove, Invalid, NotFound, Problem, ProviderNotFound, Refused
from server.instances import moves
from server.instances.drafts import name_problems
from server.instances.glimpse import Glimpse
from server.instances.observed import Seen, facts, seen
from server.instances.outside import follow
from server.instances.reconcile import unmanaged_of
from server.novita.client import NovitaClient
from server.novita.wire import RemoteInstance
from server.words import Billing, InstanceStatus, OperationKind

S = InstanceStatus
NAME_INDEX = "instance_name_is_unique_among_the_living"
MACHINE_INDEX = "instance_novita_id_is_unique"
PATH = ("input", "novitaId")


@dataclass(frozen=True, slots=True)
class AdoptDraft:
    """What a caller asks for; without a name the machine keeps its own."""

    novita_id: str
    name: str | None = None

    def check(self) -> None:
        problems = list(name_problems(self.name, ("input", "name"))) if self.name is not None else []
        if not 1 <= len(self.novita_id.strip()) <= 255 or not self.novita_id.isprintable():
            problems.append(Problem("INVALID_NOVITA_ID", "Give the provider's id of the machine.", PATH))
        if problems:
            raise Invalid(problems)


async def adopt_instance(database: Database, novita: NovitaClient, draft: AdoptDraft, *, by: Caller) -> Instance:
    """Write a row for a machine that nobody has; nothing is changed at the provider.

    One that is up, or on its way there, is followed to READY like a new one. The unique index on its id is what holds
    when two take it at once.
    """
    draft.check()
    try:
        remote = await novita.instance(draft.novita_id)
    except ProviderNotFound:
        raise NotFound("machine", PATH) from None
    glimpse = Glimpse.of(remote, asked_at=now())
    # Another project's machine is not found either: its name and state are none of the caller's business.
    if not await unmanaged_of(database, [glimpse]):
        raise NotFound("machine", PATH)
    if seen(remote) not in (Seen.UP, Seen.COMING_UP, Seen.DOWN):
        message = f"The machine is {remote.status}; wait until it runs or has exited."
        raise IllegalMove("MACHINE_NOT_ADOPTABLE", message, current=remote.status, allowed=("running", "exited"))
    try:
        async with database.write() as session:
            return await _write(session, _row(remote, draft, by), remote, by=by)
    except IntegrityError as error:
        if NAME_INDEX in str(error.orig):
            message = "Another instance has this name; choose another or delete that one first."
            raise Invalid([Problem("INSTANCE_NAME_TAKEN", message, ("input", "name"))]) from None
        if MACHINE_INDEX in str(error.orig):
            raise Refused("ALREADY_ADOPTED", "Somebody has just taken it over.", PATH) from None
        raise


async def _write(session: AsyncSession, instance: Instance, remote: RemoteInstance, *, by: Caller) -> Instance:
    cause = moves.Cause(token_id=by.token_id)
    await moves.begin(session, instance, cause=cause)
    if seen(remote) is Seen.DOWN:
        await moves.move(session, instance.id, S.STARTING, cause=cause, status_reason="ADOPTED")
        await moves.move(session, instance.id, S.EXITED, cause=cause, status_reason="ADOPTED", **facts(remote))
    else:
        await follow(session, instance, kind=OperationKind.START, cause=cause, reason="ADOPTED")
    return await moves.locked(session, instance.id)


def _row(remote: RemoteInstance, draft: AdoptDraft, by: Caller) -> Instance:
    seen_facts: dict[str, Any] = facts(remote)
    return Instance(
        id=new_id(),
        project_id=by.project_id,
        name=draft.name or remote.name or remote.id,
        product_name=remote.product_name or "unknown",
        gpu_count=min(max(remote.gpu_count or 1, 1), 8),
        rootfs_size_gb=remote.rootfs_gb or 0,
        billing=Billing.SPOT if remote.billing_mode == "spot" else Billing.ON_DEMAND,
        regions=[remote.region] if remote.region else [],
        image=remote.image or "",
        image_auth_id=remote.image_auth_id,
        command=remote.command,
        entrypoint=remote.entrypoint,
        env={variable.key: variable.value for variable in remote.envs},
        ports=[{"port": endpoint.port, "type": endpoint.type} for endpoint in remote.endpoints],
        labels={},
        health_check={},
        novita_id=remote.id,
        region=remote.region,
        product_id=remote.product_id,
        billing_mode=remote.billing_mode,
        price_per_hour_e5=remote.price_e5,
        observed_at=now(),
        **seen_facts,
    )
