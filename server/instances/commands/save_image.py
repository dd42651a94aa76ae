"""Accepts that an exited instance is saved as an image; a job starts the provider's job and follows it."""

from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.catalog.owners import owned_by_others
from server.db.database import Database
from server.enums import InstanceStatus, OperationAction, OperationKind, ProviderObjectKind
from server.errors import IllegalTransition, Invalid, Problem
from server.idempotency import IdempotentRequest, key_problems, requested_fields
from server.instances import operations
from server.instances.commands.lifecycle import Target, lock_for
from server.instances.drafts import image_problems
from server.instances.idempotency import Accepted, run_once
from server.instances.quote import known_auth
from server.instances.status import TRANSITIONS, has_machine
from server.queue.enqueue import enqueue
from server.queue.kinds import SaveImage

AUTH_PATH = ("input", "registryAuthId")


@dataclass(frozen=True, slots=True)
class SaveImageDraft:
    """`registry_auth_id` is the credential for pushing to the image's registry."""

    FIRST_FIELDS: ClassVar = frozenset(["image", "registry_auth_id", "expected_version"])
    image: str
    registry_auth_id: str | None = None
    expected_version: int | None = None
    idempotency_key: str | None = None


async def save_image(
    database: Database, catalog: Catalog, target: Target, draft: SaveImageDraft, *, by: Caller
) -> Accepted:
    """One operation, of kind UPDATE and action SAVE_IMAGE; it ends with the provider's job."""
    problems = [*image_problems(draft.image, draft.registry_auth_id), *key_problems(draft.idempotency_key)]
    if problems:
        raise Invalid(problems)
    await refuse_unknown_auth(database, catalog, draft.registry_auth_id, by=by)
    fields = requested_fields(replace(draft, idempotency_key=None)) | target.identity
    request = IdempotentRequest.of(by, draft.idempotency_key, "saveImage", fields)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        instance = await lock_for(session, target, by, draft.expected_version)
        status = InstanceStatus(instance.status)
        if status is not InstanceStatus.EXITED or not has_machine(instance):
            message = "Only an exited instance can be saved as an image; stop it first."
            raise IllegalTransition("INSTANCE_NOT_EXITED", message, current=status, allowed=sorted(TRANSITIONS[status]))
        operation = await operations.begin(
            session,
            instance,
            OperationKind.UPDATE,
            by=by.token_id,
            id=operation_id,
            action=OperationAction.SAVE_IMAGE,
            wanted={"saved_image": draft.image.strip(), "registry_auth_id": draft.registry_auth_id},
        )
        await enqueue(
            session, SaveImage(instance.id, operation.id), project_id=instance.project_id, instance_id=instance.id
        )
        return Accepted(instance, operation)

    return await run_once(database, request, write)


async def refuse_unknown_auth(database: Database, catalog: Catalog, auth_id: str | None, *, by: Caller) -> None:
    """A credential that the provider does not have, or that another project created, is refused at once."""
    if await owned_by_others(database, [(ProviderObjectKind.REGISTRY_AUTH, auth_id)], project_id=by.project_id):
        raise Invalid([Problem("REGISTRY_AUTH_NOT_FOUND", f"There is no registry auth {auth_id}.", AUTH_PATH)])
    await known_auth(catalog, auth_id, AUTH_PATH)
