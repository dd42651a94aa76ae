"""Giving committed events their place in the log: one elected process moves them from `outbox` to `event`."""

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

import asyncpg
import structlog

from server.db.engine import Database
from server.db.signals import Signals
from server.db.trouble import DATABASE_TROUBLE
from server.events.epoch import WITNESS_WITHIN, LogState, confirm_epoch, note_replication
from server.events.partitions import PARTITION_SIZE, make_partitions, partitions
from server.observe import metrics

log = structlog.get_logger(__name__)

T = TypeVar("T")

LOCK = 0x6576656E74  # any number that nobody else in that database uses
BATCH = 1000
POLL_EVERY = timedelta(milliseconds=500)  # the safety net below the wake-ups
# A leader that hangs, or whose machine is gone, must not keep the lock: the server ends a session that was silent for
# this long. One that works speaks every POLL_EVERY.
SILENT_FOR = timedelta(seconds=10)
MAKE_ROOM_EVERY = timedelta(seconds=5)  # at most, when a partition could not be made and there is still room
TRY_AGAIN_AFTER = timedelta(milliseconds=250)  # how long the log stands still, at most, after a leader died
NOTE_REPLICATION_EVERY = timedelta(seconds=1)
ANSWER_WITHIN = timedelta(seconds=30)

STAND = """
    SELECT pg_try_advisory_lock($1) AS is_elected, epoch, head
    FROM (VALUES (1)) AS one LEFT JOIN event_log ON true
"""

# Why nothing is lost and no instance's events change places:
# - Two events of one instance were appended under its row's lock: the second drew its seq, and committed, after the
#   first had committed. So a snapshot that has the second has the first, with a lower seq: both are in one batch in
#   order of seq, or the first is in an earlier batch.
# - A row with a low seq that commits late is merely in a later batch. It belongs to another instance than the rows
#   that overtook it, or its lock would have held them back; and it gets a position above all that were given out,
#   so a reader who has passed them still meets it. That is why the scan has no lower bound on seq.
# - Delete, number and insert are one statement on one snapshot: whatever kills it, an event is in exactly one of the
#   two tables. `head` lives in a row, not in this process: a successor goes on from what was committed.
# - Without a row in `event_log`, position would be null and the statement fails whole, instead of deleting only.
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
    "timezone": "UTC",
    # The outbox is empty most of the time; a plan made then would read it whole for ever after. Forbidding it looks so
    # expensive to servers before 18 that they would compile the statement each time: 0.3 s for every batch.
    "enable_seqscan": "off",
    "jit": "off",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}


class Sequencer:
    """One per process; all but one of them wait.

    The lock belongs to the session of the very connection that writes: as long as a write of ours can still happen
    the server keeps the lock for us, and once the lock is gone there is no connection left to write on.
    """

    def __init__(
        self,
        database: Database,
        signals: Signals,
        *,
        batch: int = BATCH,
        partition_size: int = PARTITION_SIZE,
        silent_for: timedelta = SILENT_FOR,
    ) -> None:
        self._database = database
        self._signals = signals
        self._batch = batch
        self._partition_size = partition_size
        silence = str(int(silent_for.total_seconds() * 1000))
        self._session = {
            **SESSION,
            "idle_session_timeout": silence,
            "idle_in_transaction_session_timeout": silence,  # the other does not count there; partitions are made so
        }
        self._task: asyncio.Task[None] | None = None
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._seen: LogState | None = None
        self.is_leader = False
        self._is_news = False  # whether somebody else led before, or we did and lost it

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="sequencer")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._cut()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._serve_one_connection()
            except DATABASE_TROUBLE as error:
                if self.is_leader:  # once, not at every try while the database is away
                    self._is_news = True
                    log.warning("sequencer.lost", error=type(error).__name__)
            except Exception:  # a log that stands still is worse: a new connection starts from what is committed
                log.exception("sequencer.failed")
            finally:
                self.is_leader = False
            await asyncio.sleep(TRY_AGAIN_AFTER.total_seconds())

    async def _serve_one_connection(self) -> None:
        connection = self._connection = await self._database.connect(
            server_settings=self._session,
            max_cached_statement_lifetime=0,  # for ever: see _prepare
            command_timeout=None,  # see _in_time
        )
        try:
            await self._in_time(self._prepare(connection), patience=WITNESS_WITHIN)
            await self._be_elected(connection)
            await self._lead(connection)
        finally:
            self._cut()

    async def _in_time(self, statement: Coroutine[Any, Any, T], *, patience: timedelta = timedelta(0)) -> T:
        """Cut the connection when no answer comes, instead of asking the server to give up as the driver would.

        A server that was cut off from its standbys holds each commit back, and so nobody sees it. Asked to give up,
        it would stop waiting and show the positions after all, while another server gives out the same ones.
        """
        timer = asyncio.get_running_loop().call_later((ANSWER_WITHIN + patience).total_seconds(), self._cut)
        try:
            return await statement
        finally:
            timer.cancel()

    def _cut(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    async def _prepare(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """Run everything once while it can't do anything, so that no statement is parsed under the lock.

        The driver parses in one step and runs in another. Between the two the server takes the session for busy, and
        none of its timeouts would end it if this process hung just there.
        """
        # A position that was seen must never come back with another event after a crash. Where the server does not
        # wait for its disk, we do; this flush takes the events' own commits along. Stricter settings stay.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        self._seen = await confirm_epoch(connection, self._seen)
        await partitions(connection)
        await note_replication(connection)
        await connection.fetchrow(MOVE, 0)

    async def _be_elected(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        # Asked for again and again: a waiting pg_advisory_lock would hold a snapshot, and vacuum with it.
        while True:
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
                return
            self._is_news = True
            await asyncio.sleep(TRY_AGAIN_AFTER.total_seconds())

    async def _lead(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        state = self._seen = await self._in_time(confirm_epoch(connection, self._seen), patience=WITNESS_WITHIN)
        head = state.head
        self.is_leader = True
        # That a first process leads goes without saying; that one took over, or leads again, does not.
        (log.info if self._is_news else log.debug)("sequencer.leads", head=head)
        room, look_again_at, note_at = 0, 0.0, 0.0
        bell = self._signals.wakeup("outbox")
        try:
            while True:
                if monotonic() >= note_at:
                    await self._in_time(note_replication(connection))
                    note_at = monotonic() + NOTE_REPLICATION_EVERY.total_seconds()
                if room - head <= self._partition_size // 2 and (room <= head + 1 or monotonic() >= look_again_at):
                    room = await self._in_time(make_partitions(connection, head=head, size=self._partition_size))
                    look_again_at = monotonic() + MAKE_ROOM_EVERY.total_seconds()
                limit = min(self._batch, room - head - 1)
                row = await self._in_time(connection.fetchrow(MOVE, limit)) if limit > 0 else None
                if row is None or row["moved"] == 0:
                    await bell.wait(POLL_EVERY)
                    continue
                head = row["head"]
                metrics.MOVED.add(by=row["moved"])
                self._signals.changed({"event"})
        finally:
            self._signals.forget("outbox", bell)
