"""An event loop in a thread of its own, so that what runs in it does not wait for the main loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """A daemon thread: the second Ctrl-C ends the process without waiting for it."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the thread's loop, and wait for its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @asynccontextmanager
    async def holding(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncGenerator[T]:
        """Make something in the thread's loop, enter it there, and leave it there at the end of the block."""

        async def enter() -> tuple[AbstractAsyncContextManager[T], T]:
            made = make()
            return made, await made.__aenter__()

        async def leave(made: AbstractAsyncContextManager[T]) -> None:
            await made.__aexit__(None, None, None)

        made, entered = await self.run(enter())
        try:
            yield entered
        finally:
            await self.run(leave(made))

    def _run(self) -> None:
        # As asyncio.run: what is left is cancelled, then the loop is closed with its executor.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()
