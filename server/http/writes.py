"""Writes the head of a response together with its body: one system call instead of two, and one segment."""

from asyncio import AbstractEventLoop, Transport


class JoinedWrites:
    """A connection's transport as uvicorn uses it. A head waits for the body until the event loop's next turn."""

    __slots__ = ("_head", "_loop", "_transport", "is_closing")

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")
