"""uvicorn's WebSocket with a way past its queue, so that one event can be written to a thousand sockets in a loop."""

from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

EXTENSION = "pilotlight.wire"
CLOSE_WITHIN = 3.0  # seconds; a peer that does not read never answers a close


class Wire(WebSocketsSansIOProtocol):
    """Found by the application in `scope["extensions"]`.

    uvicorn's own `send` waits until the peer has read, and costs a coroutine for each message. Here a message is
    handed to the transport at once; `is_full` says when to stop, `on_room` is called when there is room again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_full = False
        self.on_room: Callable[[], None] | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:  # the application runs from the next turn of the loop on
            cast("dict[str, Any]", self.scope)["extensions"][EXTENSION] = self

    @property
    def is_open(self) -> bool:
        return self.handshake_complete and not self.close_sent and not self.disconnected

    def write(self, start: bytes, rest: bytes) -> None:
        """One text message in two parts, so that the larger one can be the same for everybody."""
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

    async def room(self) -> None:
        """Until the peer has read enough, or is gone."""
        await self.writable.wait()

    def end(self, code: int, reason: str = "") -> None:
        """Close, behind what was written; cut it off if the peer does not even read that."""
        if not self.is_open or self.transport.is_closing():
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        try:
            self.conn.send_close(code, reason)
        except InvalidState:
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(CLOSE_WITHIN, self.transport.abort)

    def pause_writing(self) -> None:
        self.is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self.is_full = False
        super().resume_writing()
        if self.on_room is not None:
            self.on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_full = False
        self.on_room = None
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)
