"""Access to PostgreSQL: `read()` and `write()` transactions, and raw connections for hot paths."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import asyncpg
import orjson
from sqlalchemy import event
from sqlalchemy.engine import AdaptedConnection, ExceptionContext
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from server import clock
from server.db.hosts import PrimaryConnector
from server.db.outages import DATABASE_ERRORS
from server.db.pool import CLOSE_TIMEOUT, DRAIN_TIMEOUT, RawPool
from server.db.replica import Replica
from server.db.timeouts import Timeouts, bounded_connection
from server.db.wal_position import WalPosition
from server.observe.tracing import span

TOPICS = "topics to notify after the commit"
INVALIDATED = "provider ids whose cached state the commit makes outdated"
CALLBACKS = "callbacks to run after the commit"
READ_ONLY = "25006"
CLOCK_READING_MAX = 1.0  # seconds
DATABASE = "the database of this session"

T = TypeVar("T")
Fetch: TypeAlias = Callable[..., Awaitable[Sequence[Any]]]  # a statement and its values


# For a pooler in transaction mode: the next transaction runs on another server process, which lacks statements that
# were prepared before. An unnamed statement lives only as long as its transaction.
BEHIND_A_POOLER: dict[str, Any] = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: ""}


class Database:
    """One per process. Creating it opens no connection.

    With `direct_url`, `url` is a pooler in transaction mode: transactions go there, and whatever lives as long as its
    connection (LISTEN, locks, leases, prepared statements) goes to the server itself.
    """

    _replica: Replica | None = None

    def __init__(
        self,
        url: str,
        *,
        direct_url: str | None = None,
        read_url: str | None = None,
        replica_timeout: timedelta = timedelta(milliseconds=100),
        pool_size: int = 10,
        timeouts: Timeouts | None = None,
        on_commit: Callable[[set[str]], None] | None = None,
        name: str = "pilotlight",
    ) -> None:
        self._hosts = PrimaryConnector(url)
        self._is_behind_a_pooler = direct_url is not None
        self._direct_hosts = self._hosts if direct_url is None else PrimaryConnector(direct_url)
        self.timeouts = timeouts or Timeouts()
        self._command_timeout = self.timeouts.statement.total_seconds()
        self._name = name
        self.on_commit = on_commit
        self.on_invalidate: Callable[[set[str]], None] | None = None
        self.before_commit: Callable[[AsyncSession], Awaitable[None]] | None = None
        self.engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect_pooled,  # asyncpg parses the URL itself: sslmode, socket folders
            connect_args=BEHIND_A_POOLER if self._is_behind_a_pooler else {},
            pool_size=pool_size,
            max_overflow=0,  # callers beyond the limit wait; the server's connections stay countable
            pool_timeout=self._command_timeout,
            pool_pre_ping=False,  # saves a round trip per checkout; a broken connection is discarded on its first error
            hide_parameters=True,  # they include users' environment variables, and errors are logged with them
            json_serializer=_dumps,
            json_deserializer=orjson.loads,
        )
        event.listen(self.engine.sync_engine, "handle_error", _disconnect_from_demoted_server)
        event.listen(self.engine.sync_engine, "invalidate", _close_on_invalidation)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False, info={DATABASE: self})
        self._shared: dict[type[Any], Any] = {}
        if read_url is not None:
            self._replica = Replica(
                read_url, pool_size=pool_size, timeouts=self.timeouts, timeout=replica_timeout, name=name
            )
        self._raw = RawPool(self._connect_pooled, size=pool_size, timeout=self.timeouts.statement)
        self._wal_position = WalPosition(self._raw)
        self._closing: set[asyncio.Future[None]] = set()

    async def connect(
        self, *, server_settings: Mapping[str, str] | None = None, **overrides: Any
    ) -> "asyncpg.Connection[asyncpg.Record]":
        """A dedicated connection, for LISTEN, leases and locks. The caller closes it."""
        settings = {**self._server_settings(), **(server_settings or {})}
        options: dict[str, Any] = {"command_timeout": self._command_timeout, **overrides}
        return await self._direct_hosts.connect(server_settings=settings, **options)

    def shared(self, kind: type[T]) -> T:
        """The one object of this class that belongs to this database; made at the first call."""
        found = self._shared.get(kind)
        if found is None:
            found = self._shared[kind] = kind()
        return found

    async def check_primary(self) -> None:
        """With several hosts: disconnect from a server that was demoted without knowing."""
        await self._direct_hosts.check_primary()
        if self._hosts is not self._direct_hosts:
            await self._hosts.check_primary()

    async def _connect_pooled(self, *_: Any, **__: Any) -> "asyncpg.Connection[asyncpg.Record]":
        connection = await (self._connect_to_pooler() if self._is_behind_a_pooler else self.connect())
        await read_clock(connection)
        return connection

    async def _connect_to_pooler(self) -> "asyncpg.Connection[asyncpg.Record]":
        return await self._hosts.connect(
            command_timeout=self._command_timeout,
            # A pooler refuses settings that it can't keep apart per client, such as `jit`: set it for the role.
            server_settings={"application_name": self._name, "timezone": "UTC"},
            statement_cache_size=0,
            connection_class=bounded_connection(self.timeouts),
        )

    def _server_settings(self) -> dict[str, str]:
        # No statement runs long enough to be worth compiling, and some servers would compile each one.
        return {"application_name": self._name, "timezone": "UTC", "jit": "off", **self.timeouts.startup_parameters()}

    @property
    def raw(self) -> RawPool:
        """Raw asyncpg connections for single statements where SQLAlchemy's extra round trips count."""
        return self._raw

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """A read-only transaction on one snapshot."""
        with span("db.read"):
            async with self._open_session() as session:
                await session.connection(
                    execution_options={"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
                )
                yield session

    @asynccontextmanager
    async def read_from_replica_if_fresh(self) -> AsyncGenerator[AsyncSession]:
        """Like `read`, from a replica if there is one: for large and frequent reads.

        It sees every write that was acknowledged before the call. That costs one small query to the primary, shared by
        all calls that wait at that moment: which WAL position the replica must have replayed.
        """
        if self._replica is None:
            async with self.read() as session:
                yield session
            return
        position = await self._wal_position.read()
        async with AsyncExitStack() as stack:
            session = None
            if position is not None:
                session = await stack.enter_async_context(self._replica.session(reached=position))
            yield session or await stack.enter_async_context(self.read())

    async def fetch_from_replica_if_fresh(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """The rows of one statement, which sees the same; for the reads that most requests consist of."""
        if self._replica is not None:
            position = await self._wal_position.read()
            rows = None if position is None else await self._replica.fetch(position, statement, *values)
            if rows is not None:
                return rows
        return await self.raw.fetch(statement, *values)

    @asynccontextmanager
    async def read_replica(self) -> AsyncGenerator[AsyncSession | None]:
        """A replica's state, however old: for callers that check whether it suffices. None if there is no replica."""
        if self._replica is None:
            yield None
            return
        async with self._replica.session() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """One transaction, committed at its end or rolled back; then subscribers of its topics are notified.

        The NOTIFY is sent after the commit, outside the transaction: inside, it would lock the whole database until the
        flush is over, and all such commits would be serialized.
        """
        with span("db.write"):
            async with self._open_session() as session:
                async with session.begin(), _invalidate_on_cancel(session):
                    yield session
                    if self.before_commit is not None:
                        await self.before_commit(session)
                topics: set[str] | None = session.info.get(TOPICS)
                novita_ids: set[str] | None = session.info.get(INVALIDATED)
                callbacks: list[Callable[[], None]] = session.info.get(CALLBACKS, [])
        for callback in callbacks:
            callback()
        if novita_ids and self.on_invalidate is not None:
            self.on_invalidate(novita_ids)
        if topics and self.on_commit is not None:
            self.on_commit(topics)

    @asynccontextmanager
    async def _open_session(self) -> AsyncGenerator[AsyncSession]:
        """A session whose close is not awaited on cancellation: the network may be silent."""
        session = self._sessions()
        try:
            async with _invalidate_on_cancel(session):
                yield session
        finally:
            closing = asyncio.ensure_future(session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    def pools(self) -> list["PoolUsage"]:
        """Current use of the connection pools."""
        engine: Any = self.engine.pool
        # SQLAlchemy has no public count of waiting callers; they wait in an asyncio queue.
        waiting = _waiting(getattr(getattr(engine, "_pool", None), "_queue", None))
        used = [PoolUsage("sessions", engine.size(), engine.checkedout(), waiting)]
        return [*used, PoolUsage("raw", self._raw.size, self._raw.in_use, self._raw.waiting)]

    async def close(self) -> None:
        await self._raw.close()
        if self._closing:
            await asyncio.wait(self._closing, timeout=DRAIN_TIMEOUT)
        if self._replica is not None:
            await self._replica.close()
        await self.engine.dispose()


async def read_clock(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Let this process's clock follow the server's."""
    sent = time.monotonic()
    moment = await connection.fetchval("SELECT clock_timestamp()")
    received = time.monotonic()
    if received - sent < CLOCK_READING_MAX:  # else it may have been taken at either end
        clock.CLOCK.follow(moment, at=(sent + received) / 2)


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool: maximum connections, connections in use, and callers that wait for one."""

    name: str
    size: int
    in_use: int
    waiting: int


def _waiting(queue: Any) -> int:
    return sum(not getter.done() for getter in getattr(queue, "_getters", ()))


def database_of(session: AsyncSession) -> Database:
    """The database that opened this session."""
    return session.info[DATABASE]


def fetch_in(session: AsyncSession) -> Fetch:
    """Runs statements of the raw connections in the transaction of a session."""

    async def fetch(statement: str, *values: Any) -> Sequence[Any]:
        await session.flush()  # the session's own statements do so
        connection = await session.connection()
        return (await connection.exec_driver_sql(statement, values)).all()

    return fetch


def notify_after_commit(session: AsyncSession, topic: str) -> None:
    """Notify the subscribers of `topic` once this transaction is committed."""
    session.info.setdefault(TOPICS, set()).add(topic)


def invalidate_after_commit(session: AsyncSession, novita_id: str) -> None:
    """Drop cached provider state of that machine once this transaction is committed."""
    session.info.setdefault(INVALIDATED, set()).add(novita_id)


def _disconnect_from_demoted_server(context: ExceptionContext) -> None:
    """Treats a refused write on a read-only server as a disconnect: the server was demoted."""
    connection = context.connection
    is_read_only = connection is not None and connection.get_execution_options().get("postgresql_readonly", False)
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY and not is_read_only:
        context.is_disconnect = True


def _close_on_invalidation(connection: AdaptedConnection, _record: object, _error: object) -> None:
    """Closes the connection of a cancelled statement quickly, also on a silent network.

    SQLAlchemy alone waits two seconds: a worker that lost its lease would still run jobs that other workers start.
    """
    with contextlib.suppress(MissingGreenlet, *DATABASE_ERRORS):  # closed by the garbage collector; closed already
        connection.run_async(_close)


async def _close(driver: "asyncpg.Connection[asyncpg.Record]") -> None:
    """In a task of its own: until Python 3.11.2, a timeout in a cancelled task raises CancelledError."""
    await asyncio.create_task(driver.close(timeout=CLOSE_TIMEOUT))


@asynccontextmanager
async def _invalidate_on_cancel(session: AsyncSession) -> AsyncGenerator[None]:
    """On cancellation discards the connection without a ROLLBACK: the server rolls back when its client is gone."""
    try:
        yield
    except asyncio.CancelledError:
        await session.invalidate()
        raise


def after_commit(session: AsyncSession, callback: Callable[[], None]) -> None:
    """Run a callback once this transaction is committed, for counting; never after a rollback."""
    session.info.setdefault(CALLBACKS, []).append(callback)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
