"""Changes image and start settings of an instance on its machine, once: each upgrade resets the machine.

What the machine shows is compared with what was requested, so that an upgrade whose response was lost is recognised.
"""

from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.encryption import Cipher, UnknownEncryptionKey
from server.enums import OperationPhase
from server.instances import operations, transitions
from server.instances.env import OWN_NAMES, opened, sealed
from server.instances.provider.states import MachineState, state_of
from server.jobs.failures import Reason, revert_with_job
from server.jobs.machine_run import is_another_run
from server.jobs.provider_call import Call, Loaded, drive
from server.jobs.registry import JobContext, handles
from server.novita import models
from server.queue.handler import Outcome
from server.queue.kinds import UpgradeInstance

log = structlog.get_logger(__name__)


@handles(UpgradeInstance, failed=revert_with_job)
async def upgrade_instance(work: UpgradeInstance, ctx: JobContext) -> Outcome:
    cipher = ctx.services.cipher

    def is_done(loaded: Loaded, remote: models.RemoteInstance) -> bool:
        if operations.is_accepted(loaded.operation):
            return True  # killed before the monitor was enqueued: the call is not repeated
        is_reset = state_of(remote) is MachineState.COMING_UP or is_another_run(loaded.operation, remote)
        return loaded.operation.asked_at is not None and is_reset and _is_shown(loaded, remote, cipher)

    def call(loaded: Loaded, remote: models.RemoteInstance) -> Call | Reason | None:
        if state_of(remote) not in (MachineState.UP, MachineState.DOWN):
            return None
        try:
            request = _request(loaded, remote, cipher)
        except UnknownEncryptionKey as error:
            log.error("upgrade.encryption_key_missing", error=str(error))
            if now() - loaded.operation.created_at > ctx.settings.provider_max_wait:
                return Reason("ENCRYPTION_KEY_MISSING", str(error), retryable=True)
            return None  # another worker may have the key
        return Call(lambda novita_id: ctx.novita.upgrade_instance(novita_id, request), repeatable=False)

    async def check(loaded: Loaded) -> Reason | None:
        """The machine would be reset, and then fail to pull its image."""
        auth_id = _value(loaded, "image_auth_id")
        if not auth_id or await ctx.catalog.has_registry_auth(auth_id):
            return None
        message = f"The provider has no registry auth {auth_id} in this account."
        return Reason("REGISTRY_AUTH_NOT_FOUND", message, retryable=False)

    async def save(session: AsyncSession, loaded: Loaded) -> None:
        changes = dict(loaded.operation.wanted)
        if changes.get("env") is not None:
            changes["env"] = sealed(_env(loaded, cipher), cipher)  # with the present key
        await transitions.update(session, loaded.instance.id, cause=loaded.cause, **changes)

    return await drive(
        work,
        ctx,
        phase=OperationPhase.RESTARTING,
        is_done=is_done,
        call=call,
        waits_for_jobs=True,
        check=check,
        accepted=save,
    )


def _request(loaded: Loaded, remote: models.RemoteInstance, cipher: Cipher) -> models.UpgradeInstance:
    """All settings: the provider takes those that are left out for empty ones. The machine keeps its own variables, and
    the volumes that it has."""
    env = _env(loaded, cipher) | {each.key: each.value for each in remote.envs if each.key in OWN_NAMES}
    return models.UpgradeInstance(
        image=_value(loaded, "image"),
        image_auth_id=_value(loaded, "image_auth_id"),
        envs=tuple(models.Env(key, value) for key, value in env.items()),
        command=_value(loaded, "command") or "",
        entrypoint=_value(loaded, "entrypoint") or "",
        network_storages=_mounts(remote),
    )


def _mounts(remote: models.RemoteInstance) -> tuple[models.StorageMount, ...] | None:
    """The network volumes that the machine shows, named again: whether those that are left out stay is not known."""
    shown = [each for each in remote.volumes if each.type == "network" and each.id]
    return tuple(models.StorageMount(str(each.id), each.mount_path) for each in shown) or None


def _value(loaded: Loaded, name: str) -> Any:
    """As requested, else as it is."""
    return loaded.operation.wanted.get(name, getattr(loaded.instance, name))


def _env(loaded: Loaded, cipher: Cipher) -> dict[str, str]:
    requested = loaded.operation.wanted.get("env")
    if requested is None:
        return opened(loaded.instance, cipher)
    return {name: cipher.open(value) for name, value in requested.items()}


def _is_shown(loaded: Loaded, remote: models.RemoteInstance, cipher: Cipher) -> bool:
    wanted = loaded.operation.wanted
    shown = {"image": remote.image, "command": remote.command or "", "entrypoint": remote.entrypoint or ""}
    if any(wanted[name] != value for name, value in shown.items() if name in wanted):
        return False
    if wanted.get("env") is None:
        return True
    shown_env = {variable.key: variable.value for variable in remote.envs if variable.key not in OWN_NAMES}
    return {name: value for name, value in _env(loaded, cipher).items() if name not in OWN_NAMES} == shown_env
