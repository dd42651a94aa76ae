"""Credentials for image registries. The password is passed on to the provider and kept nowhere."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import SecretStr

from server.account.object_rows import Seen
from server.account.objects import Account, Creation, Editor, create_object, delete_object
from server.auth.caller import Caller
from server.catalog.catalog import RegistryAuth
from server.catalog.owners import owned_by_others
from server.db.text import is_storable
from server.enums import ProviderObjectKind
from server.errors import Invalid, Problem
from server.idempotency import IdempotentRequest
from server.instances.drafts import MAX_NAME

MAX_PASSWORD = 10_239
KIND = ProviderObjectKind.REGISTRY_AUTH


@dataclass(frozen=True, slots=True)
class RegistryAuthDraft:
    name: str
    username: str
    password: SecretStr
    idempotency_key: str | None = None

    def problems(self) -> Iterator[Problem]:
        for field, value, longest in (
            ("name", self.name, MAX_NAME),
            ("username", self.username, MAX_NAME),
            ("password", self.password.get_secret_value(), MAX_PASSWORD),
        ):
            if not value.strip() or len(value) > longest or not is_storable(value):
                yield Problem("INVALID_REGISTRY_AUTH", f"It has 1 to {longest} characters.", ("input", field))


async def create_registry_auth(
    account: Account, draft: RegistryAuthDraft, *, by: Caller
) -> tuple[RegistryAuth | None, bool]:
    """The stored credential, and whether it was stored by an earlier request with the same key."""
    problems = list(draft.problems())
    if problems:
        raise Invalid(problems)
    # Without the password: a hash of it would be stored with the key.
    fields = {"name": draft.name, "username": draft.username}
    request = IdempotentRequest.of(by, draft.idempotency_key, "createRegistryAuth", fields)

    async def send() -> None:
        await account.novita.save_registry_auth(name=draft.name, username=draft.username, password=draft.password)

    creation = Creation(KIND, draft.name, send, lambda: ids_of(account, draft.name))
    created = await create_object(account, request, creation)
    auths = await account.catalog.registry_auths()
    return next((auth for auth in auths if auth.id == created.novita_id), None), created.replayed


async def delete_registry_auth(account: Account, novita_id: str, *, by: Editor) -> None:
    await delete_object(account, KIND, novita_id, exists=_exists, send=account.novita.delete_registry_auth, by=by)
    await account.catalog.registry_auths(fresh=True)


async def _exists(account: Account, novita_id: str) -> bool:
    return await account.catalog.has_registry_auth(novita_id)


async def auth_problems(account: Account, auth_id: str | None, *, by: Caller) -> list[Problem]:
    """For requests that name a credential: it must exist and be visible to the project."""
    if not auth_id:
        return []
    is_foreign = bool(await owned_by_others(account.database, [(KIND, auth_id)], project_id=by.project_id))
    if is_foreign or not await account.catalog.has_registry_auth(auth_id):
        message = f"There is no registry auth {auth_id}."
        return [Problem("REGISTRY_AUTH_NOT_FOUND", message, ("input", "registryAuthId"))]
    return []


async def all_seen(account: Account) -> list[Seen]:
    auths = await account.catalog.registry_auths(fresh=True)
    return [Seen.of(auth.id, auth.name, auth.username) for auth in auths]


async def ids_of(account: Account, name: str) -> set[str]:
    """The ids that the provider has under this name now."""
    return {auth.id for auth in await account.catalog.registry_auths(fresh=True) if auth.name == name}
