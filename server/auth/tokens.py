"""Making and recognising bearer tokens. Only hashes are stored."""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import ColumnElement, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.engine import Database
from server.db.signals import Signals
from server.db.tables import Project, Token
from server.db.trouble import DATABASE_TROUBLE
from server.words import Role

log = structlog.get_logger(__name__)

TOPIC = "token"  # for whoever changes what a token may do
PREFIX = "pl_"
DEFAULT_PROJECT = "default"
SEEN_EVERY = timedelta(minutes=1)  # `last_used_at` is for people; a write per request would be a write per read
BELIEVED = timedelta(seconds=5)  # how long a revoked token may still open something where the word of it got lost
MOST_KNOWN = 10_000


def new_secret() -> str:
    """256 random bits: no guessing, so a fast hash is enough to store them."""
    return PREFIX + secrets.token_urlsafe(32)


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
    """Store a token for a project, making the project if there is none of that name. The same secret again is no-op."""
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


async def any_token(session: AsyncSession) -> bool:
    """Whether anybody could call the API at all."""
    return (await session.execute(select(Token.id).where(_is_valid()).limit(1))).first() is not None


class Tokens:
    """Recognises callers, and remembers when each was last seen.

    A token that was found good is believed for `BELIEVED`, so that a busy caller costs no query; whoever revokes one
    says so (`will_change(session, TOPIC)`), and every process looks again. What is not good is never remembered.
    """

    def __init__(self, database: Database, signals: Signals | None = None) -> None:
        self._database = database
        self._bell = None if signals is None else signals.wakeup(TOPIC)
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._looks: dict[bytes, asyncio.Task[Caller | None]] = {}
        self._seen: dict[UUID, datetime] = {}
        self._used: dict[UUID, datetime] = {}
        self._writing: asyncio.Task[None] | None = None

    async def caller_of(self, secret: str) -> Caller | None:
        """Whose token this is; None when it is nobody's, expired or revoked."""
        if self._bell is not None and self._bell.heard():
            self.forget()
        key = hash_of(secret)
        known = self._known.get(key)
        if known is None or known[1] <= time.monotonic():
            caller = await self._looked_up(key)
        else:
            caller = known[0]
        if caller is None or (caller.expires_at is not None and caller.expires_at <= now()):
            return None
        self._note_use(caller.token_id)
        return caller

    def forget(self) -> None:
        """A token was changed: none is believed any more, nor what is being looked up now."""
        self._known.clear()
        self._looks.clear()

    async def still_valid(self, token_ids: Collection[UUID]) -> frozenset[UUID]:
        """Those that are neither expired nor revoked."""
        async with self._database.read() as session:
            found = await session.execute(select(Token.id).where(Token.id.in_(token_ids), _is_valid()))
            return frozenset(found.scalars())

    async def close(self) -> None:
        """Write down what is left to be written."""
        if self._writing is not None:
            await self._writing

    async def _looked_up(self, key: bytes) -> Caller | None:
        """One query for all who come with the same token at the same time."""
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = asyncio.create_task(self._look_up(key))
        # Shielded: one caller who goes away must not take the answer from the others.
        return await asyncio.shield(look)

    async def _look_up(self, key: bytes) -> Caller | None:
        me = asyncio.current_task()
        begun = time.monotonic()  # what is read now may be over by the time it is here
        try:
            async with self._database.read() as session:
                found = await session.execute(
                    select(Token.id, Token.project_id, Token.role, Token.expires_at).where(
                        Token.hash == key, _is_valid()
                    )
                )
                row = found.first()
            if row is None:
                return None
            caller = Caller(project_id=row.project_id, token_id=row.id, role=Role(row.role), expires_at=row.expires_at)
            if self._looks.get(key) is me:  # else somebody was revoked while we looked
                self._known[key] = (caller, begun + BELIEVED.total_seconds())
                self._known.move_to_end(key)
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
            return caller
        finally:
            if self._looks.get(key) is me:
                del self._looks[key]

    def _note_use(self, token_id: UUID) -> None:
        """Written beside the request, together with those of others who came meanwhile."""
        moment = now()
        seen = self._seen.get(token_id)
        if seen is not None and moment - seen < SEEN_EVERY:
            return
        self._seen[token_id] = moment
        self._used[token_id] = moment
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_uses())

    async def _write_uses(self) -> None:
        while self._used:
            used, self._used = self._used, {}
            try:
                async with self._database.write() as session:
                    # In one order: two processes must not wait for each other's rows.
                    for token_id, moment in sorted(used.items()):
                        await session.execute(update(Token).where(Token.id == token_id).values(last_used_at=moment))
            except DATABASE_TROUBLE as error:
                log.warning("token.use_not_noted", error=type(error).__name__)


def _is_valid() -> ColumnElement[bool]:
    moment = now()
    return Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > moment))
