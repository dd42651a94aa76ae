"""A proxy that can go silent: connections stay open and no bytes pass."""

import asyncio
import contextlib
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards to the database at `url`; its own address is in `self.url`."""

    def __init__(self, url: str, *, port: int = 0) -> None:
        self._target = urlsplit(url)
        self._port = port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        port = self._server.sockets[0].getsockname()[1]
        login = self._target.netloc.rpartition("@")[0]
        self.url = urlunsplit(
            self._target._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}")
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stall(self) -> None:
        """From now on every byte waits, in both directions, and so do new connections."""
        self._flowing.clear()

    @property
    def is_stalled(self) -> bool:
        return not self._flowing.is_set()

    def go_on(self) -> None:
        """What has waited arrives now."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._flowing.wait()
            there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
            try:
                await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer))
            finally:
                back.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
