"""An event loop in a thread, for the synchronous client."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")
CLOSE_ATTEMPTS = 100


class LoopThread:
    """Runs coroutines and asynchronous iterators for callers without a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pilotlight-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the caller's thread ends the request as well
            raise

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if self._thread.is_alive():
                self.run(_close(items))

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[Result]) -> Generator[Result, None, None]:
        entered = self.run(_enter(manager))
        try:
            yield entered
        except BaseException as error:
            if not self.run(_exit(manager, error)):
                raise
        else:
            self.run(_exit(manager, None))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(items: AsyncIterator[Result]) -> Result:
    return await items.__anext__()


async def _close(items: AsyncIterator[Any]) -> None:
    """After Ctrl-C its last step may still be ending; until then it can't be closed."""
    close: Callable[[], Awaitable[None]] | None = getattr(items, "aclose", None)
    if close is None:
        return
    for _ in range(CLOSE_ATTEMPTS):
        try:
            await close()
            return
        except RuntimeError:
            await asyncio.sleep(0.01)


async def _enter(manager: AbstractAsyncContextManager[Result]) -> Result:
    return await manager.__aenter__()


async def _exit(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    return bool(await manager.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None))
