"""Accepts a new image or new start settings of an instance; a job resets its machine with them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.db.database import Database
from server.db.tables import Instance
from server.encryption import PLAIN, Cipher
from server.enums import InstanceStatus, OperationAction, OperationKind
from server.errors import Invalid, Problem
from server.idempotency import IdempotentRequest, key_problems, requested_fields
from server.instances.commands.lifecycle import Target, begin_verb, lock_for, start_limits
from server.instances.commands.save_image import refuse_unknown_auth
from server.instances.drafts import MAX_ENV_OF_CPU, command_problems, env_problems, image_problems
from server.instances.env import sealed, secret_names
from server.instances.idempotency import Accepted, run_once
from server.instances.status import UP, Verb
from server.queue.kinds import UpgradeInstance

S = InstanceStatus

UPGRADE = Verb(
    OperationKind.UPDATE,
    UP | {S.EXITED, S.FAILED},
    "INSTANCE_NOT_UPGRADABLE",
    S.RESTARTING,
    lambda instance_id, operation_id: UpgradeInstance(instance_id, operation_id),
    action=OperationAction.UPGRADE,
)


@dataclass(frozen=True, slots=True)
class UpgradeDraft:
    """The new values; `None` leaves a value as it is. `env` replaces all variables."""

    FIRST_FIELDS: ClassVar = frozenset(["image", "registry_auth_id", "env", "command", "entrypoint"])
    image: str | None = None
    registry_auth_id: str | None = None
    env: Mapping[str, str] | None = None
    command: str | None = None
    entrypoint: str | None = None
    secret_env: tuple[tuple[str, bool], ...] = ()
    expected_version: int | None = None
    idempotency_key: str | None = None

    def problems(self) -> Iterator[Problem]:
        changes = (self.image, self.registry_auth_id, self.env, self.command, self.entrypoint)
        if all(each is None for each in changes):
            yield Problem("NOTHING_TO_UPDATE", "Give at least one value to change.", ("input",))
        yield from image_problems(self.image, self.registry_auth_id)
        yield from command_problems(self.command, self.entrypoint)
        yield from env_problems(self.env or {})
        yield from key_problems(self.idempotency_key)

    def wanted(self, cipher: Cipher) -> dict[str, Any]:
        """The columns of the instance that change."""
        columns: dict[str, Any] = {
            "image": None if self.image is None else self.image.strip(),
            "image_auth_id": self.registry_auth_id,
            "command": self.command,
            "entrypoint": self.entrypoint,
        }
        if self.env is not None:
            columns["env"] = sealed(self.env, cipher)
            columns["secret_env"] = secret_names(self.env, self.secret_env)
        return {name: value for name, value in columns.items() if value is not None}


async def upgrade_instance(
    database: Database,
    catalog: Catalog,
    target: Target,
    draft: UpgradeDraft,
    *,
    by: Caller,
    cipher: Cipher = PLAIN,
    default_max_duration: timedelta | None = None,
) -> Accepted:
    """One operation, of kind UPDATE and action UPGRADE. An exited instance is started by it."""
    problems = list(draft.problems())
    if problems:
        raise Invalid(problems)
    await refuse_unknown_auth(database, catalog, draft.registry_auth_id, by=by)
    fields = requested_fields(replace(draft, idempotency_key=None)) | target.identity
    request = IdempotentRequest.of(by, draft.idempotency_key, "upgradeInstance", fields)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        instance = await lock_for(session, target, by, draft.expected_version)
        _refuse_env(draft, instance)
        verb, changes = UPGRADE, dict[str, Any]()
        if instance.status == S.EXITED:
            verb = replace(UPGRADE, to=S.STARTING)
            changes = await start_limits(session, instance, by=by, server_default=default_max_duration)
        return await begin_verb(
            session,
            verb,
            instance,
            by=by.token_id,
            operation_id=operation_id,
            changes=changes,
            wanted=draft.wanted(cipher),
        )

    return await run_once(database, request, write)


def _refuse_env(draft: UpgradeDraft, instance: Instance) -> None:
    if instance.gpu_count == 0 and len(draft.env or {}) > MAX_ENV_OF_CPU:
        message = f"A CPU instance takes {MAX_ENV_OF_CPU} environment variables."
        raise Invalid([Problem("INVALID_ENV", message, ("input", "env"))])
