"""Creates and authenticates bearer tokens. Only hashes are stored."""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import ColumnElement, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.auth.token_limits import read_limits
from server.auth.wrong_tokens import WrongTokens
from server.clock import new_id, now
from server.db.database import Database
from server.db.notify import Notifier
from server.db.outages import DATABASE_ERRORS
from server.db.tables import Project, ProjectRow, Token, TokenRow
from server.db.tables.rows import columns_of, make_rows
from server.enums import Role

log = structlog.get_logger(__name__)

TOPIC = "token"  # notified when a token is changed or revoked
PREFIX = "pl_"
SESSION_PREFIX = "pls_"  # of a login: accepted from its cookie, and from nowhere else
DEFAULT_PROJECT = "default"
LAST_USED_INTERVAL = timedelta(minutes=1)  # of writing `last_used_at`: otherwise every read would cost a write
CALLER_TTL = timedelta(seconds=5)  # how long a revoked token may still work if its notification is lost
CACHED_CALLERS_MAX = 10_000
# The condition is `_is_valid`.
LOOK_UP = f"""
    SELECT {columns_of(TokenRow, "token.")}, {columns_of(ProjectRow, "project.")}
    FROM token JOIN project ON project.id = token.project_id
    WHERE token.hash = $1 AND token.revoked_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > $2)
      AND ($3 OR NOT token.is_loopback_only)
"""


def new_secret(prefix: str = PREFIX) -> str:
    """256 random bits can't be guessed, so a fast hash is enough to store them."""
    return prefix + secrets.token_urlsafe(32)


def bearer_secret(authorization: object) -> str | None:
    """The secret of an Authorization header. None for another scheme, and for that of a login."""
    kind, _, secret = authorization.partition(" ") if isinstance(authorization, str) else ("", "", "")
    is_token = kind.lower() == "bearer" and not secret.strip().startswith(SESSION_PREFIX)
    return (secret.strip() or None) if is_token else None


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def create_token(
    session: AsyncSession,
    *,
    project: str,
    name: str,
    role: Role,
    secret: str,
    expires_at: datetime | None = None,
) -> UUID:
    """Store a token for a project, creating the project if needed. Repeating it with the same secret is a no-op."""
    project_id = await ensure_project(session, project)
    row = await session.execute(
        insert(Token)
        .values(
            id=new_id(),
            project_id=project_id,
            name=name,
            role=role,
            hash=hash_of(secret),
            hint=secret[-4:],
            expires_at=expires_at,
        )
        .on_conflict_do_update(index_elements=["hash"], set_={"hash": hash_of(secret)})
        .returning(Token.id)
    )
    return row.scalar_one()


async def ensure_project(session: AsyncSession, name: str) -> UUID:
    row = await session.execute(
        insert(Project)
        .values(id=new_id(), name=name)
        .on_conflict_do_update(index_elements=["name"], set_={"name": name})
        .returning(Project.id)
    )
    return row.scalar_one()


async def any_token(session: AsyncSession, *, is_loopback: bool = True) -> bool:
    """Whether there is a token that a server on such an address accepts."""
    return (await session.execute(select(Token.id).where(_is_valid(is_loopback)).limit(1))).first() is not None


async def limit_to_loopback(session: AsyncSession, secret: str) -> None:
    """Refuse this token from now on wherever others can reach the server."""
    await session.execute(update(Token).where(Token.hash == hash_of(secret)).values(is_loopback_only=True))


class Tokens:
    """Authenticates callers, and records when each token was last used.

    A valid token is cached for `CALLER_TTL`, so that a busy caller costs no query. Revoking one notifies `TOPIC`, and
    every process clears its cache. Invalid tokens are not cached, but limited per address before a query is spent.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier | None = None,
        *,
        wrong_tokens: WrongTokens | None = None,
        is_loopback: bool = True,
    ) -> None:
        """`is_loopback`: whether only this machine can reach the server; development tokens are valid then."""
        self._database = database
        self._is_loopback = is_loopback
        self._wrong_tokens = wrong_tokens or WrongTokens(0)
        # Hashes of tokens that were right before: they are looked up whatever else comes from their address, which may
        # be a proxy's.
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._wakeup = None if notifier is None else notifier.subscribe(TOPIC)
        self._cached: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[Caller | None]] = {}
        self._recorded: dict[UUID, datetime] = {}
        self._used: dict[UUID, datetime] = {}
        self._writing: asyncio.Task[None] | None = None

    async def caller_of(self, secret: str, *, address: str = "") -> Caller | None:
        """The caller with this token; None if it is unknown, expired or revoked. Raises TooManyWrongTokens."""
        if self._wakeup is not None and self._wakeup.consume():
            self.forget()
        key = hash_of(secret)
        cached = self._cached.get(key)
        if cached is None or cached[1] <= time.monotonic():
            caller = await self._limited_lookup(key, address)
        else:
            caller = cached[0]
        if caller is None or (caller.expires_at is not None and caller.expires_at <= now()):
            return None
        self._record_use(caller.token_id)
        return caller

    def forget(self) -> None:
        """Clear the cache after a token was changed; look-ups in progress are not cached either."""
        self._cached.clear()
        self._lookups.clear()

    async def still_valid(self, token_ids: Collection[UUID]) -> frozenset[UUID]:
        """The tokens that are neither expired nor revoked."""
        async with self._database.read() as session:
            found = await session.execute(select(Token.id).where(Token.id.in_(token_ids), _is_valid(self._is_loopback)))
            return frozenset(found.scalars())

    async def close(self) -> None:
        """Wait for pending writes of `last_used_at`."""
        if self._writing is not None:
            await self._writing

    async def _limited_lookup(self, key: bytes, address: str) -> Caller | None:
        if key in self._known:
            caller = await self._shared_lookup(key)
            if caller is None:
                self._known.pop(key, None)  # revoked or expired: from now on it is a wrong one
            return caller
        self._wrong_tokens.take(address)
        caller = await self._shared_lookup(key)
        if caller is not None:
            self._wrong_tokens.give_back(address)
            self._known[key] = None
            if len(self._known) > CACHED_CALLERS_MAX:
                self._known.popitem(last=False)
        return caller

    async def _shared_lookup(self, key: bytes) -> Caller | None:
        """One query for simultaneous callers with the same token."""
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.create_task(self._look_up(key))
        # Shielded: one cancelled caller must not cancel the look-up for the others.
        return await asyncio.shield(lookup)

    async def _look_up(self, key: bytes) -> Caller | None:
        me = asyncio.current_task()
        began = time.monotonic()  # the TTL counts from before the read
        try:
            found = await self._database.raw.fetchrow(LOOK_UP, key, now(), self._is_loopback)
            if found is None:
                return None
            (token,) = make_rows(TokenRow, [list(found)[: len(TokenRow._fields)]])
            project = ProjectRow._make(list(found)[len(TokenRow._fields) :])
            caller = Caller(
                project_id=token.project_id,
                token_id=token.id,
                role=Role(token.role),
                expires_at=token.expires_at,
                limits=read_limits(token.limits),
                token=token,
                project=project,
            )
            if self._lookups.get(key) is me:  # else a token was changed during the look-up
                self._cached[key] = (caller, began + CALLER_TTL.total_seconds())
                self._cached.move_to_end(key)
                if len(self._cached) > CACHED_CALLERS_MAX:
                    self._cached.popitem(last=False)
            return caller
        finally:
            if self._lookups.get(key) is me:
                del self._lookups[key]

    def _record_use(self, token_id: UUID) -> None:
        """Written in the background, batched with the uses of other tokens."""
        moment = now()
        seen = self._recorded.get(token_id)
        if seen is not None and moment - seen < LAST_USED_INTERVAL:
            return
        self._recorded[token_id] = moment
        self._used[token_id] = moment
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_uses())

    async def _write_uses(self) -> None:
        while self._used:
            used, self._used = self._used, {}
            try:
                async with self._database.write() as session:
                    # Sorted, so that two processes can't deadlock.
                    for token_id, moment in sorted(used.items()):
                        await session.execute(update(Token).where(Token.id == token_id).values(last_used_at=moment))
            except DATABASE_ERRORS as error:
                log.warning("token.use_not_noted", error=type(error).__name__)


def _is_valid(is_loopback: bool) -> ColumnElement[bool]:
    moment = now()
    is_for_here = true() if is_loopback else ~Token.is_loopback_only
    return is_for_here & Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > moment))
