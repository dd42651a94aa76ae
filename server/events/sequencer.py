"""Numbers committed events: one elected process moves them from `outbox` to `event`."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

import asyncpg
import structlog

from server.db.database import Database
from server.db.notify import Look, Notifier
from server.db.outages import DATABASE_ERRORS
from server.events.log_identity import PROMOTION_TIMEOUT, LogState, confirm_epoch, record_replication
from server.events.partitions import PARTITION_SIZE, make_partitions, partitions
from server.observe import metrics
from server.tasks import stop_task

log = structlog.get_logger(__name__)

T = TypeVar("T")

LOCK = 0x6576656E74  # any number that no other program uses in this database
BATCH = 1000
POLL_INTERVAL = timedelta(seconds=1)  # while notifications of other processes are not received
LOOK = Look("EXISTS (SELECT FROM outbox)")
# A leader that hangs, or whose machine is gone, must not keep the lock: the server ends a session that is silent for
# this long. A working leader sends a statement every QUIET_POLL.
SILENCE_TIMEOUT = timedelta(seconds=10)
PARTITION_RETRY_INTERVAL = timedelta(seconds=5)  # after a partition could not be created and there is still room
ELECTION_INTERVAL = timedelta(milliseconds=250)  # the longest pause of the log after a leader died
REPLICATION_CHECK_INTERVAL = timedelta(seconds=1)
STATEMENT_TIMEOUT = timedelta(seconds=30)

# Why no event is lost and an instance's events keep their order:
# - Two events of one instance are appended under its row's lock: the second draws its seq, and commits, after the first
#   has committed. A snapshot with the second therefore has the first, with a lower seq: both are in one batch in order
#   of seq, or the first is in an earlier batch.
# - A row with a low seq that commits late is in a later batch. It belongs to another instance than the rows that
#   overtook it, or its lock would have delayed them; and its position is above all assigned ones, so a reader that has
#   passed them still gets it. That is why the scan has no lower bound on seq.
# - Delete, number and insert are one statement on one snapshot: if it is killed, an event is in exactly one of the two
#   tables. `head` is in a row, not in this process: a successor continues from what was committed.
# - Without a row in `event_log`, position is null and the whole statement fails, instead of only deleting.
MOVE = """
    WITH moved AS (
        DELETE FROM outbox
        WHERE seq = ANY (ARRAY(SELECT seq FROM outbox ORDER BY seq LIMIT $1))
        RETURNING *
    ), numbered AS (
        UPDATE event_log SET head = head + (SELECT count(*) FROM moved)
        WHERE EXISTS (SELECT FROM moved)
        RETURNING head
    ), written AS (
        INSERT INTO event (position, id, type, project_id, instance_id, operation_id, caused_by, data, occurred_at)
        SELECT (SELECT head FROM numbered) - (SELECT count(*) FROM moved) + row_number() OVER (ORDER BY seq),
               id, type, project_id, instance_id, operation_id, caused_by, data, occurred_at
        FROM moved
    )
    SELECT (SELECT count(*) FROM moved) AS moved, (SELECT head FROM numbered) AS head
"""

SESSION = {
    "application_name": "pilotlight sequencer",
    # The outbox is usually empty, and a plan made then would be a sequential scan for ever. Forbidding that makes the
    # statement look so expensive to servers before 18 that JIT, were it not off, would take 0.3 s per batch.
    "enable_seqscan": "off",
    "statement_timeout": "0",  # see _with_timeout
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}


class Sequencer:
    """One per process; only the one with the advisory lock works.

    The lock belongs to the session that writes: as long as this process can write, the server keeps its lock, and once
    the lock is released the connection is gone.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        *,
        batch: int = BATCH,
        partition_size: int = PARTITION_SIZE,
        silence_timeout: timedelta = SILENCE_TIMEOUT,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._batch = batch
        self._partition_size = partition_size
        silence = str(int(silence_timeout.total_seconds() * 1000))
        self._session = {
            **SESSION,
            "idle_session_timeout": silence,
            "idle_in_transaction_session_timeout": silence,  # for transactions, where the first does not apply
        }
        self._task: asyncio.Task[None] | None = None
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._seen: LogState | None = None
        self.is_leader = False
        self._is_takeover = False  # whether another process led before, or this one did and lost the lock

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="sequencer")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._terminate()
        await stop_task(self._task)
        self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_one_connection()
            except DATABASE_ERRORS as error:
                if self.is_leader:  # once, not at every try while the database is away
                    self._is_takeover = True
                    log.warning("sequencer.lost", error=type(error).__name__)
            except Exception:  # a log that stands still is worse: a new connection starts from what is committed
                log.exception("sequencer.failed")
            finally:
                self.is_leader = False
            await asyncio.sleep(ELECTION_INTERVAL.total_seconds())

    async def _serve_one_connection(self) -> None:
        connection = self._connection = await self._database.connect(
            server_settings=self._session,
            max_cached_statement_lifetime=0,  # for ever: see _prepare
            command_timeout=None,  # see _with_timeout
        )
        try:
            await self._with_timeout(self._prepare(connection), extra=PROMOTION_TIMEOUT)
            await self._wait_for_lock(connection)
            await self._lead(connection)
        finally:
            self._terminate()

    async def _with_timeout(self, statement: Coroutine[Any, Any, T], *, extra: timedelta = timedelta(0)) -> T:
        """On a timeout terminate the connection, instead of sending a cancel request as the driver would.

        A primary that lost its synchronous standbys delays each commit, so its positions are not visible. A cancel
        request would end that wait and make them visible, while a promoted server assigns the same positions.
        """
        timer = asyncio.get_running_loop().call_later((STATEMENT_TIMEOUT + extra).total_seconds(), self._terminate)
        try:
            return await statement
        finally:
            timer.cancel()

    def _terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    async def _prepare(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Run every statement once without effect, so that none is parsed under the lock.

        The driver parses and executes in two steps. Between them the server considers the session busy, so none of its
        timeouts would end it if this process hung there.
        """
        # After a crash, a position that a reader saw must never return with another event. If the server is configured
        # not to wait for its disk, this session does; its flush includes the events' own commits.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        self._seen = await confirm_epoch(connection, self._seen)
        await partitions(connection)
        await record_replication(connection)
        await connection.fetchrow(MOVE, 0)

    async def _wait_for_lock(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        # Polled: a waiting pg_advisory_lock would hold a snapshot and so hold back vacuum.
        while True:
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
                return
            self._is_takeover = True
            await asyncio.sleep(ELECTION_INTERVAL.total_seconds())

    async def _lead(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        state = self._seen = await self._with_timeout(confirm_epoch(connection, self._seen), extra=PROMOTION_TIMEOUT)
        head = state.head
        self.is_leader = True
        # Only a take-over, or leading again, is worth an info line.
        (log.info if self._is_takeover else log.debug)("sequencer.leads", head=head)
        room, make_room_at, record_at = 0, 0.0, 0.0
        wakeup = self._notifier.subscribe("outbox", LOOK)
        try:
            while True:
                if monotonic() >= record_at:
                    await self._with_timeout(record_replication(connection))
                    record_at = monotonic() + REPLICATION_CHECK_INTERVAL.total_seconds()
                if room - head <= self._partition_size // 2 and (room <= head + 1 or monotonic() >= make_room_at):
                    room = await self._with_timeout(make_partitions(connection, head=head, size=self._partition_size))
                    make_room_at = monotonic() + PARTITION_RETRY_INTERVAL.total_seconds()
                limit = min(self._batch, room - head - 1)
                row = await self._with_timeout(connection.fetchrow(MOVE, limit)) if limit > 0 else None
                moved = 0 if row is None else row["moved"]
                if row is not None and moved:
                    head = row["head"]
                    metrics.MOVED.add(by=moved)
                    self._notifier.notify({"event"})
                if moved < max(limit, 1):  # nothing is left; what was committed meanwhile has woken us
                    await wakeup.wait(self._notifier.poll_interval(POLL_INTERVAL))
        finally:
            self._notifier.unsubscribe("outbox", wakeup)
