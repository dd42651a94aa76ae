"""WebSockets over uvicorn: direct writes, and bounds for frames, fragments and bytes that wait."""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.http11 import Request

from server.graphql.transports.scope import EXTENSION
from server.http.connection_limits import Visit

CLOSE_TIMEOUT = 3.0  # seconds; a peer that does not read never answers a close
POLICY_VIOLATION = 1008
# The shortest frame has 6 bytes and costs some 10 microseconds: a piece holds the loop for 3 ms at most. The 256 KB
# that may arrive at once would hold it for 0.4 s.
PIECE = 2048
# A client that is not admitted yet needs one frame, and a few pings at most.
FRAMES_BEFORE_ADMISSION = 100
# A client that sends more is read more slowly, so that one socket costs a few hundredths of a core.
FRAMES_PER_SECOND = 2_000
# A client that fragments at all does it at a kilobyte or more.
FRAGMENTS_MAX = 1_000
BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class DirectWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that the application finds in `scope["extensions"]` and writes to directly.

    uvicorn's own `send` waits until the peer has read and costs a coroutine per message. Here a message goes to the
    transport at once; `is_full` says when to stop, `on_room` is called when there is room again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_full = False
        self.on_room: Callable[[], None] | None = None
        self._visit: Visit | None = None
        self._unread = bytearray()
        self._is_cut = False
        self._next_parse: TimerHandle | None = None
        self._frames_seen = 0  # in this second; before admission, in all
        self._second_began = 0.0

    def take_over(self, visit: Visit, client: tuple[str, int] | None) -> None:
        """The place in the counts of the connection that this was, and its client."""
        self._visit = visit
        visit.hold(0)
        if self.handshake_initiated and not self.close_sent:
            self.scope["client"] = client

    def admit(self, project_id: UUID) -> None:
        """The caller is known: from now on it is slowed down, not cut off."""
        if self._visit is not None:
            self._visit.admit(project_id)

    @property
    def _is_admitted(self) -> bool:
        return self._visit is not None and self._visit.is_admitted

    def data_received(self, data: bytes) -> None:
        if not self._is_cut:
            self._unread += data
            if self._next_parse is None:
                self._parse()

    def _parse(self) -> None:
        """Parse a piece of what has arrived; the next piece only after other connections had their turn."""
        self._next_parse = None
        if self._unread and not self._must_wait() and not self._delay():
            piece = bytes(self._unread[:PIECE])
            del self._unread[:PIECE]
            super().data_received(piece)
            if self.conn.handshake_exc is not None and not self.handshake_initiated:
                self.transport.write(BAD_HANDSHAKE)
                self.transport.close()
        self._read_on()

    def _must_wait(self) -> bool:
        """A message waits for the application, or the peer does not read what it is sent."""
        return self.read_paused or self.is_full

    def _delay(self) -> float:
        """Seconds until an admitted client may send another frame."""
        moment = self.loop.time()
        if self._is_admitted and moment - self._second_began >= 1:
            self._second_began, self._frames_seen = moment, 0
        if not self._is_admitted or self._frames_seen < FRAMES_PER_SECOND:
            return 0
        return self._second_began + 1 - moment

    def _read_on(self) -> None:
        """Read from the socket when all has been parsed; else parse on as soon as possible."""
        if self.transport.is_closing() or self.disconnected:
            self._unread.clear()
            return
        self._count_waiting()
        delay = self._delay()
        if self._is_cut or self._unread or self._must_wait() or delay:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        if (self._unread or delay) and not self._must_wait() and self._next_parse is None and not self._is_cut:
            self._next_parse = self.loop.call_later(delay, self._parse)

    def _count_waiting(self) -> None:
        """What a stranger sent and did not finish, or does not read. A caller's messages have limits of their own."""
        if self._visit is None:
            return
        waiting = 0
        if not self._visit.is_admitted:
            waiting = len(self._unread) + len(self.conn.reader.buffer) + (self.conn.current_size or 0)
            waiting += self.transport.get_write_buffer_size()
        if not self._visit.hold(waiting):
            self._cut("Too many bytes are waiting")

    def handle_events(self) -> None:
        self._frames_seen += len(self.conn.events)
        if not self._is_admitted and self._frames_seen > FRAMES_BEFORE_ADMISSION:
            self._cut("Too many frames before connection_init")
        else:
            super().handle_events()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS_MAX:
            self._cut("A message has too many fragments")
        else:
            super().handle_cont(event)

    def _cut(self, reason: str) -> None:
        """Close it and read no more: the peer may read the reason, but what it sends costs nothing."""
        if self._is_cut:
            return
        self._is_cut = True
        self._unread.clear()
        if self.is_open:
            self.close_with(POLICY_VIOLATION, reason)
        else:
            self.transport.abort()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._read_on()
        return message

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:  # the application starts in the next iteration of the loop
            cast("dict[str, Any]", self.scope)["extensions"][EXTENSION] = self

    @property
    def is_open(self) -> bool:
        return self.handshake_complete and not self.close_sent and not self.disconnected

    def write(self, start: bytes, rest: bytes) -> None:
        """Write one text message in two parts, so that all sockets can share the larger one."""
        if self.close_sent or self.disconnected:
            return
        size = len(start) + len(rest)
        if size < 126:
            header = bytes((0x81, size))
        elif size < 65536:
            header = b"\x81\x7e" + size.to_bytes(2, "big")
        else:
            header = b"\x81\x7f" + size.to_bytes(8, "big")
        self.transport.write(b"".join((header, start, rest)))

    async def wait_for_room(self) -> None:
        """Wait until the peer has read enough, or is gone."""
        await self.writable.wait()

    def close_with(self, code: int, reason: str = "") -> None:
        """Close after what was written; abort if the peer does not read it in time."""
        if not self.is_open or self.transport.is_closing():
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        try:
            self.conn.send_close(code, reason)
        except InvalidState:
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.read_paused = False
        self._read_on()
        self.close_timer = self.loop.call_later(CLOSE_TIMEOUT, self.transport.abort)

    def pause_writing(self) -> None:
        self.is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self.is_full = False
        super().resume_writing()
        self._read_on()
        if self.on_room is not None:
            self.on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_full = False
        self.on_room = None
        self._unread.clear()
        if self._next_parse is not None:
            self._next_parse.cancel()
        if self._visit is not None:
            self._visit.end()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(CLOSE_TIMEOUT, self.transport.abort)
