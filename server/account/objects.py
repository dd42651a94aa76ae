"""Creates and deletes objects of the provider account: registry auths, templates, networks, prewarmed images.

They are not billed by themselves and the provider has no idempotency key for them. A row is committed before the call,
so that the object belongs to its project at once; after a lost response the object is recognised by its name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, TypeAlias

import structlog
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from server.account.object_rows import forget, record_created, record_deleted
from server.auth.caller import Caller
from server.catalog.catalog import Catalog
from server.clock import new_id
from server.db.database import Database
from server.db.dry_run import DryRun
from server.db.tables import ProviderObject
from server.enums import ProviderObjectKind
from server.errors import Invalid, KeyReused, NotFound, NovitaError, ProviderNotFound, ProviderTimeout, Refused
from server.idempotency import IdempotentRequest, KeyTaken, find_object, key_problems, reserve
from server.instances.provider.live_reads import LiveReads
from server.novita.client import NovitaClient

log = structlog.get_logger(__name__)

# A caller waits for the provider. Longer than most calls take; the row remembers a call without a response.
CALL_TIMEOUT = timedelta(seconds=20)
# After this long, an object that a call without a response may have created would be listed.
UNCONFIRMED_FOR = timedelta(seconds=60)
# How long and how often a new object is looked for, if the response has no id.
LISTED_WITHIN = 10.0
LOOK_EVERY = 0.25

ID_PATH = ("input", "id")
NOUNS = {
    ProviderObjectKind.REGISTRY_AUTH: "registry auth",
    ProviderObjectKind.TEMPLATE: "template",
    ProviderObjectKind.NETWORK: "network",
    ProviderObjectKind.PREWARM: "prewarm",
}


@dataclass(frozen=True, slots=True)
class Account:
    """The provider account, for requests. A dry run has one with its own database."""

    database: Database
    novita: NovitaClient
    catalog: Catalog
    live_reads: LiveReads  # every request here costs calls of its own

    @property
    def is_dry_run(self) -> bool:
        return isinstance(self.database, DryRun)


@dataclass(frozen=True, slots=True)
class Editor:
    """A caller who wants to change an object, and whether it may change those that no project created."""

    caller: Caller
    is_server_admin: bool


Exists: TypeAlias = Callable[[Account, str], Awaitable[bool]]
Delete: TypeAlias = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Creation:
    """One object to create. `send` returns its id, or None if the response has none; `ids_of_name` reads the ids that
    the provider has under this name."""

    kind: ProviderObjectKind
    name: str
    send: Callable[[], Awaitable[str | None]]
    ids_of_name: Callable[[], Awaitable[Collection[str]]]


@dataclass(frozen=True, slots=True)
class Created:
    """`novita_id` is None in a dry run, and if the object was deleted since."""

    novita_id: str | None
    replayed: bool = False


async def create_object(account: Account, request: IdempotentRequest, creation: Creation) -> Created:
    """Create the object, or return the one that the same key created before."""
    problems = list(key_problems(request.key))
    if problems:
        raise Invalid(problems)
    account.live_reads.take(request.by)
    row = await _find_accepted(account.database, request)
    if row is not None:
        return await _resume(account, row, creation)
    before = await creation.ids_of_name()
    try:
        row = await _reserve(account.database, request, creation, before)
    except KeyTaken:
        row = await _find_accepted(account.database, request)
        if row is None:
            raise KeyReused from None
        return await _resume(account, row, creation)
    if account.is_dry_run:
        return Created(None)
    return Created(await _send(account, row, creation))


async def settle_unconfirmed(
    account: Account, ids_of_name: Callable[[ProviderObjectKind, str], Awaitable[Collection[str]]]
) -> int:
    """For calls without a response that no caller repeated: record the object, or forget that it was requested."""
    async with account.database.read() as session:
        rows = await session.execute(
            select(ProviderObject).where(
                ProviderObject.novita_id.is_(None),
                ProviderObject.deleted_at.is_(None),
                ProviderObject.asked_at < func.clock_timestamp() - 2 * UNCONFIRMED_FOR,
            )
        )
    settled = 0
    for row in rows.scalars().all():
        found = await _new_of(account, row, await ids_of_name(ProviderObjectKind(row.kind), row.name))
        if found is None:
            await forget(account.database, row)
        else:
            await record_created(account.database, row, found)
        settled += 1
    return settled


async def delete_object(
    account: Account, kind: ProviderObjectKind, novita_id: str, *, exists: Exists, send: Delete, by: Editor
) -> None:
    """Delete an object that the caller may change; one that is already gone is forgotten."""
    await require_owner(account, kind, novita_id, exists=exists, by=by)
    if account.is_dry_run:
        return
    was_there = True
    try:
        await call(lambda: send(novita_id))
    except ProviderNotFound:
        was_there = False
    await record_deleted(account.database, kind, novita_id, by=by.caller, was_there=was_there)
    log.info("provider_object.deleted", kind=kind, novita_id=novita_id, token_id=by.caller.token_id)


async def require_owner(
    account: Account, kind: ProviderObjectKind, novita_id: str, *, exists: Exists, by: Editor
) -> None:
    """Refuse callers that may not change the object: it belongs to the project that created it, or to the server."""
    account.live_reads.take(by.caller)
    async with account.database.read() as session:
        row = await session.scalar(
            select(ProviderObject).where(
                ProviderObject.kind == kind,
                ProviderObject.novita_id == novita_id,
            )
        )
    if row is not None and row.project_id == by.caller.project_id and row.deleted_at is None:
        return
    if row is not None or not await exists(account, novita_id):
        raise NotFound(NOUNS[kind], ID_PATH)
    if not by.is_server_admin:
        message = "It was not created by this project: only an ADMIN of the project `default` may change it."
        raise Refused("NOT_CREATED_HERE", message, ID_PATH)


async def call(send: Callable[[], Awaitable[None]]) -> None:
    """Call the provider for a waiting caller; a final refusal becomes an error of the payload."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
            await send()
    except TimeoutError:
        raise ProviderTimeout("the provider takes too long") from None
    except ProviderNotFound:
        raise
    except NovitaError as error:
        refuse(error)


def refuse(error: NovitaError) -> NoReturn:
    """What the caller has to correct is a refusal; what may pass by itself stays a retryable error."""
    if error.retryable:
        raise error
    raise Refused(error.code, f"The provider refused it: {error.message}") from error


async def _resume(account: Account, row: ProviderObject, creation: Creation) -> Created:
    """Of a repeated request: what was created, or another attempt if the first had no response."""
    if row.novita_id is not None or row.deleted_at is not None or account.is_dry_run:
        return Created(row.novita_id if row.deleted_at is None else None, replayed=True)
    ids = await creation.ids_of_name()
    found = await _new_of(account, row, ids)
    if found is not None:
        await record_created(account.database, row, found)
        return Created(found, replayed=True)
    async with account.database.write() as session:
        # Only one of several callers sends again, and only if the first call can no longer take effect.
        taken = await session.execute(
            update(ProviderObject)
            .where(
                ProviderObject.id == row.id,
                ProviderObject.novita_id.is_(None),
                ProviderObject.asked_at < func.clock_timestamp() - UNCONFIRMED_FOR,
            )
            .values(asked_at=func.clock_timestamp(), known_before=sorted(ids))
            .returning(ProviderObject.id)
        )
        may_send = taken.first() is not None
    if not may_send:
        raise _unconfirmed()
    row.known_before = sorted(ids)
    return Created(await _send(account, row, creation), replayed=True)


async def _send(account: Account, row: ProviderObject, creation: Creation) -> str:
    try:
        async with asyncio.timeout(CALL_TIMEOUT.total_seconds()):
            novita_id = await creation.send()
    except TimeoutError:
        raise ProviderTimeout("the provider takes too long; repeat the request with the same key") from None
    except NovitaError as error:
        if not error.is_certain_refusal:
            raise
        await forget(account.database, row)
        refuse(error)
    if novita_id is None:
        novita_id = await _look_for_new(account, row, creation)
    await record_created(account.database, row, novita_id)
    log.info("provider_object.created", kind=row.kind, novita_id=novita_id, token_id=row.created_by)
    return novita_id


async def _look_for_new(account: Account, row: ProviderObject, creation: Creation) -> str:
    for _ in range(int(LISTED_WITHIN / LOOK_EVERY)):
        found = await _new_of(account, row, await creation.ids_of_name())
        if found is not None:
            return found
        await asyncio.sleep(LOOK_EVERY)
    raise _unconfirmed()


async def _new_of(account: Account, row: ProviderObject, ids: Collection[str]) -> str | None:
    """The id that is new since the row was written and that no other row has."""
    new = set(ids) - set(row.known_before)
    if not new:
        return None
    async with account.database.read() as session:
        owned = await session.scalars(
            select(ProviderObject.novita_id).where(ProviderObject.kind == row.kind, ProviderObject.novita_id.in_(new))
        )
    return min(new - set(owned.all()), default=None)


async def _reserve(
    database: Database, request: IdempotentRequest, creation: Creation, before: Collection[str]
) -> ProviderObject:
    row = ProviderObject(
        id=new_id(),
        project_id=request.by.project_id,
        kind=creation.kind,
        name=creation.name,
        known_before=sorted(before),
        created_by=request.by.token_id,
    )
    try:
        async with database.write() as session:
            await reserve(session, request, None, object_id=row.id)
            session.add(row)
            await session.flush()
    except IntegrityError as error:
        if "provider_object_one_unconfirmed_per_name" not in str(error.orig):
            raise
        message = "An object of this name is being created; try again in a minute."
        raise Refused("CREATION_NOT_CONFIRMED", message, ("input", "name")) from None
    return row


async def _find_accepted(database: Database, request: IdempotentRequest) -> ProviderObject | None:
    previous = await find_object(database, request, ProviderObject)
    if previous is not None and previous.row is None:
        raise KeyReused
    return None if previous is None else previous.row


def _unconfirmed() -> Refused:
    message = "The provider has not confirmed it yet; repeat the request with the same key in a minute."
    return Refused("CREATION_NOT_CONFIRMED", message)
