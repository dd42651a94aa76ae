"""The way to PostgreSQL: `read()` and `write()` for everybody, raw connections for the hot paths."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
from sqlalchemy import event
from sqlalchemy.engine import AdaptedConnection, ExceptionContext
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from server.db.raw import FAREWELL, LAST_WORDS, RawPool
from server.db.replica import Replica
from server.db.servers import Servers
from server.db.trouble import DATABASE_TROUBLE
from server.observe.traces import span

COMMITTED = "topics that the commit will have changed"
WRITTEN = "machines whose rows the commit will have changed"
THEN = "what is to be called after the commit"
READ_ONLY = "25006"


# What a pooler in transaction mode asks for: the next transaction runs on another server process, which knows nothing
# of statements that were prepared before. An unnamed one lives as long as its own transaction.
BEHIND_A_POOLER: dict[str, Any] = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: ""}


class Database:
    """One per process. Opened lazily: making one does not connect.

    With `direct_url`, `url` leads to a pooler in transaction mode: transactions go there, and whatever lives as long
    as its connection (LISTEN, locks, leases, prepared statements) goes to the server itself.
    """

    _replica: Replica | None = None

    def __init__(
        self,
        url: str,
        *,
        direct_url: str | None = None,
        read_url: str | None = None,
        read_patience: timedelta = timedelta(milliseconds=100),
        pool_size: int = 10,
        command_timeout: timedelta = timedelta(seconds=30),
        on_commit: Callable[[set[str]], None] | None = None,
        name: str = "pilotlight",
    ) -> None:
        self._servers = Servers(url)
        self._is_behind_a_pooler = direct_url is not None
        self._direct = self._servers if direct_url is None else Servers(direct_url)
        self._command_timeout = command_timeout.total_seconds()
        self._name = name
        self.on_commit = on_commit
        self.on_written: Callable[[set[str]], None] | None = None
        self.engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect_pooled,  # asyncpg reads the URL itself: sslmode, socket folders
            connect_args=BEHIND_A_POOLER if self._is_behind_a_pooler else {},
            pool_size=pool_size,
            max_overflow=0,  # a bound is a bound: callers beyond it wait, the server's connections stay ours to count
            pool_timeout=self._command_timeout,
            pool_pre_ping=False,  # one round trip a checkout; a broken connection is thrown away on its first error
            hide_parameters=True,  # people's environments are among them, and errors are logged whole
            json_serializer=_dumps,
            json_deserializer=orjson.loads,
        )
        event.listen(self.engine.sync_engine, "handle_error", _leave_a_deposed_server)
        event.listen(self.engine.sync_engine, "invalidate", _leave_soon)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        if read_url is not None:
            self._replica = Replica(
                read_url, pool_size=pool_size, command_timeout=command_timeout, patience=read_patience, name=name
            )
        self._raw = RawPool(self._connect_pooled, size=pool_size, patience=command_timeout)
        self._closing: set[asyncio.Future[None]] = set()

    async def connect(self, **overrides: Any) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection of one's own, for LISTEN, leases and locks. Whoever asked for it closes it."""
        options: dict[str, Any] = {
            "command_timeout": self._command_timeout,
            "server_settings": self._session(),
            **overrides,
        }
        return await self._direct.connect(**options)

    async def look_around(self) -> None:
        """Where there are several servers: leave one that was deposed without noticing."""
        await self._direct.look_around()
        if self._servers is not self._direct:
            await self._servers.look_around()

    async def _connect_pooled(self, *_: Any, **__: Any) -> "asyncpg.Connection[asyncpg.Record]":
        if not self._is_behind_a_pooler:
            return await self.connect()
        return await self._servers.connect(
            command_timeout=self._command_timeout,
            # A pooler refuses whatever it can't keep apart for its clients: `jit` is for the role's own settings.
            server_settings={"application_name": self._name, "timezone": "UTC"},
            statement_cache_size=0,
        )

    def _session(self) -> dict[str, str]:
        # No statement of ours runs long enough to be worth compiling, and some servers would compile them every time.
        return {"application_name": self._name, "timezone": "UTC", "jit": "off"}

    @property
    def raw(self) -> RawPool:
        """Raw asyncpg connections for statements where SQLAlchemy's extra round trips count."""
        return self._raw

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """A read-only transaction: one moment's view of the rows, and no way to write by mistake."""
        with span("db.read"):
            async with self._opened() as session:
                await session.connection(
                    execution_options={"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
                )
                yield session

    @asynccontextmanager
    async def read_widely(self) -> AsyncGenerator[AsyncSession]:
        """Like `read`, from a replica where there is one: for reads that are large and many.

        Whatever anybody was told to be written before this was asked is seen. That costs one small question to the
        primary: which place in the WAL a replica has to have reached.
        """
        if self._replica is None:
            async with self.read() as session:
                yield session
            return
        place = await self._place_in_wal()
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._replica.session(reached=place)) if place else None
            yield session or await stack.enter_async_context(self.read())

    @asynccontextmanager
    async def read_replica(self) -> AsyncGenerator[AsyncSession | None]:
        """A replica's own state, however old: for readers who can tell whether it is enough. None: there is none."""
        if self._replica is None:
            yield None
            return
        async with self._replica.session() as session:
            yield session

    async def _place_in_wal(self) -> str | None:
        """How far the primary has written for good; None if it can't say, as a pooled one that changes places."""
        try:
            return await self.raw.fetchval("SELECT pg_current_wal_flush_lsn()::text")
        except DATABASE_TROUBLE:
            return None

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """One transaction, committed at its end or not at all; then whoever waits for its topics is woken.

        The waking comes after the commit and outside the transaction: a NOTIFY inside it would take a lock on
        the whole database until the flush is over, and all such commits would go one by one.
        """
        with span("db.write"):
            async with self._opened() as session:
                async with session.begin(), _given_up_at_once(session):
                    yield session
                topics: set[str] | None = session.info.get(COMMITTED)
                written: set[str] | None = session.info.get(WRITTEN)
                then: list[Callable[[], None]] = session.info.get(THEN, [])
        for call in then:
            call()
        if written and self.on_written is not None:
            self.on_written(written)
        if topics and self.on_commit is not None:
            self.on_commit(topics)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[AsyncSession]:
        """One that whoever is cancelled need not wait for: SQLAlchemy would, and the network may be silent."""
        session = self._sessions()
        try:
            async with _given_up_at_once(session):
                yield session
        finally:
            closing = asyncio.ensure_future(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    def pools(self) -> list["PoolUse"]:
        """How the connections that requests and jobs share are used at this moment."""
        engine: Any = self.engine.pool
        # Neither library tells how many wait; both keep them in a queue of asyncio's.
        waiting = _waiting(getattr(getattr(engine, "_pool", None), "_queue", None))
        used = [PoolUse("sessions", engine.size(), engine.checkedout(), waiting)]
        return [*used, PoolUse("raw", self._raw.size, self._raw.in_use, self._raw.waiting)]

    async def close(self) -> None:
        await self._raw.close()
        if self._closing:
            await asyncio.wait(self._closing, timeout=LAST_WORDS)
        if self._replica is not None:
            await self._replica.close()
        await self.engine.dispose()


@dataclass(frozen=True, slots=True)
class PoolUse:
    """One pool: how many connections it may hold, how many are in use, and how many callers wait for one."""

    name: str
    size: int
    in_use: int
    waiting: int


def _waiting(queue: Any) -> int:
    return sum(not getter.done() for getter in getattr(queue, "_getters", ()))


def will_change(session: AsyncSession, topic: str) -> None:
    """Say that this transaction, once committed, gives the readers of `topic` something to do."""
    session.info.setdefault(COMMITTED, set()).add(topic)


def will_write(session: AsyncSession, novita_id: str) -> None:
    """Say that this transaction, once committed, makes what is remembered of that machine out of date."""
    session.info.setdefault(WRITTEN, set()).add(novita_id)


def _leave_a_deposed_server(context: ExceptionContext) -> None:
    """A server that takes no writes any more is as good as gone: its connections are, too."""
    connection = context.connection
    meant_to_read = connection is not None and connection.get_execution_options().get("postgresql_readonly", False)
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY and not meant_to_read:
        context.is_disconnect = True


def _leave_soon(connection: AdaptedConnection, _record: object, _error: object) -> None:
    """Whoever is cancelled in the middle of a statement is out of it at once, however dead the network is.

    SQLAlchemy by itself waits two seconds: a worker that lost its lease would still have jobs that others begin.
    """
    with contextlib.suppress(MissingGreenlet, *DATABASE_TROUBLE):  # found by the garbage collector; gone already
        connection.run_async(lambda driver: driver.close(timeout=FAREWELL))


@asynccontextmanager
async def _given_up_at_once(session: AsyncSession) -> AsyncGenerator[None]:
    """Without a ROLLBACK, whose answer may never come: a server whose client is gone does it by itself."""
    try:
        yield
    except asyncio.CancelledError:
        await session.invalidate()
        raise


def after_commit(session: AsyncSession, call: Callable[[], None]) -> None:
    """Call it once this transaction is committed, and never if it is not: for counting what has happened."""
    session.info.setdefault(THEN, []).append(call)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
