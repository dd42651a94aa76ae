"""Adopts a machine that was created outside Pilotlight: it becomes an instance like any other."""

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.database import Database
from server.db.tables import Instance
from server.encryption import PLAIN, Cipher
from server.enums import Billing, InstanceStatus, OperationKind
from server.errors import IllegalTransition, Invalid, NotFound, Problem, ProviderNotFound, Refused
from server.instances import attempts, transitions
from server.instances.drafts import name_problems
from server.instances.env import sealed, secret_names
from server.instances.markers import marker_of
from server.instances.provider.drift import start_monitoring
from server.instances.provider.mounts import record_mounts
from server.instances.provider.reader import ProviderReader
from server.instances.provider.settle import link_found
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, observed_columns, observed_fields, state_of, times_of
from server.instances.provider.unlinked import Origin, unlinked_machines
from server.novita.models import RemoteInstance

S = InstanceStatus
NAME_INDEX = "instance_name_is_unique_among_the_living"
MACHINE_INDEX = "instance_novita_id_is_unique_among_the_living"
PATH = ("input", "novitaId")


@dataclass(frozen=True, slots=True)
class AdoptDraft:
    """A checked request; without a name the machine keeps its own."""

    novita_id: str
    name: str | None = None

    def check(self) -> None:
        problems = list(name_problems(self.name, ("input", "name"))) if self.name is not None else []
        if not 1 <= len(self.novita_id.strip()) <= 255 or not self.novita_id.isprintable():
            problems.append(Problem("INVALID_NOVITA_ID", "Give the provider's id of the machine.", PATH))
        if problems:
            raise Invalid(problems)


async def adopt_instance(
    database: Database, reader: ProviderReader, draft: AdoptDraft, *, by: Caller, cipher: Cipher = PLAIN
) -> Instance:
    """Write a row for a machine that no project has; nothing is changed at the provider.

    A machine that runs or is starting is monitored until READY, like a new one. If two callers adopt it at once, the
    unique index on its id refuses the second. A machine of a create without a response gets the row of that create.
    """
    draft.check()
    try:
        remote = await reader.fetch(draft.novita_id, by=by)
    except ProviderNotFound:
        raise NotFound("machine", PATH) from None
    snapshot = ProviderSnapshot.of(remote, asked_at=now())
    unlinked = await unlinked_machines(database, [snapshot])
    # Another project's machine is not found either: its name and state are private to that project.
    if not unlinked or not unlinked[0].is_visible_to(by.project_id):
        raise NotFound("machine", PATH)
    if unlinked[0].origin is Origin.SECOND:
        message = "It belongs to an instance that another machine serves, and is being removed or will take over."
        raise IllegalTransition("MACHINE_NOT_ADOPTABLE", message, current=remote.status, allowed=())
    if unlinked[0].origin is Origin.IN_DOUBT:
        return await _link(database, draft, remote)
    if state_of(remote) not in (MachineState.UP, MachineState.COMING_UP, MachineState.DOWN):
        message = f"The machine is {remote.status}; wait until it runs or has exited."
        raise IllegalTransition("MACHINE_NOT_ADOPTABLE", message, current=remote.status, allowed=("running", "exited"))
    try:
        async with database.write() as session:
            return await _write(session, _fields(remote, draft, by, cipher), remote, by=by)
    except IntegrityError as error:
        if NAME_INDEX in str(error.orig):
            message = "Another instance has this name; choose another or delete that one first."
            raise Invalid([Problem("INSTANCE_NAME_TAKEN", message, ("input", "name"))]) from None
        if MACHINE_INDEX in str(error.orig):
            raise Refused("ALREADY_ADOPTED", "Another caller has just adopted it.", PATH) from None
        raise


async def _link(database: Database, draft: AdoptDraft, remote: RemoteInstance) -> Instance:
    """Link a machine to the instance that it was created for."""
    async with database.write() as session:
        attempt = await attempts.with_marker(session, str(marker_of(remote.name)))
        if attempt is None:
            raise NotFound("machine", PATH)
        instance = await transitions.lock(session, attempt.instance_id)
        if draft.name not in (None, instance.name):
            message = f"It was created for the instance {instance.name}; adopt it without a name, or with this one."
            raise Invalid([Problem("MACHINE_HAS_INSTANCE", message, ("input", "name"))])
        if not await link_found(session, attempt, remote):
            raise NotFound("machine", PATH)
        return await transitions.lock(session, instance.id)


async def _write(session: AsyncSession, fields: dict[str, Any], remote: RemoteInstance, *, by: Caller) -> Instance:
    cause = transitions.Cause(token_id=by.token_id)
    instance = await transitions.insert(session, fields, cause=cause, times=times_of(remote))
    if state_of(remote) is MachineState.DOWN:
        await transitions.transition(session, instance.id, S.STARTING, cause=cause, status_reason="ADOPTED")
        await transitions.transition(
            session, instance.id, S.EXITED, cause=cause, status_reason="ADOPTED", **observed_fields(remote)
        )
    else:
        await start_monitoring(session, instance, kind=OperationKind.START, cause=cause, reason="ADOPTED")
    await record_mounts(session, [remote], cause=cause)
    return await transitions.lock(session, instance.id)


def _fields(remote: RemoteInstance, draft: AdoptDraft, by: Caller, cipher: Cipher) -> dict[str, Any]:
    env = {variable.key: variable.value for variable in remote.envs}
    return {
        "id": new_id(),
        "project_id": by.project_id,
        "name": draft.name or remote.name or remote.id,
        "product_name": remote.product_name or "unknown",
        "gpu_count": 0 if remote.kind == "cpu" else min(max(remote.gpu_count or 1, 1), 8),
        "rootfs_size_gb": remote.rootfs_gb or 0,
        "billing": Billing.SPOT if remote.billing_mode == "spot" else Billing.ON_DEMAND,
        "regions": [remote.region] if remote.region else [],
        "image": remote.image or "",
        "image_auth_id": remote.image_auth_id,
        "command": remote.command,
        "entrypoint": remote.entrypoint,
        "tools": [asdict(tool) for tool in remote.tools],
        "network_id": remote.network_id,
        "env": sealed(env, cipher),
        "secret_env": secret_names(env),
        "ports": [{"port": endpoint.port, "type": endpoint.type} for endpoint in remote.endpoints],
        "novita_id": remote.id,
        "region": remote.region,
        "product_id": remote.product_id,
        "billing_mode": remote.billing_mode,
        "price_per_hour_e5": remote.price_e5,
        "observed_at": now(),
        **observed_columns(remote),
    }
