"""One query for many askers: what thousands of small jobs want to know at about the same time is read together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Batch(Generic[Key, Value]):
    """Collects keys for `window` seconds, at most `largest` of them, and calls `load` once for all."""

    def __init__(
        self,
        load: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Value]]],
        *,
        window: float = 0.01,
        largest: int = 1000,
    ) -> None:
        self._load = load
        self._window = window
        self._largest = largest
        self._waiting: dict[Key, asyncio.Future[Value | None]] = {}

    async def ask(self, key: Key) -> Value | None:
        """None when `load` said nothing about it."""
        # Shielded: others may wait for the same key.
        return await asyncio.shield(self.add(key))

    def add(self, key: Key) -> "asyncio.Future[Value | None]":
        """The same for somebody who does not wait for the answer."""
        waiting = self._waiting.get(key)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._waiting[key] = loop.create_future()
            if len(self._waiting) == 1:
                loop.call_later(self._window, self._go)
        return waiting

    def _go(self) -> None:
        keys = list(self._waiting)[: self._largest]
        batch = {key: self._waiting.pop(key) for key in keys}
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._go)
        if batch:
            task = asyncio.get_running_loop().create_task(self._answer(batch))
            _kept.add(task)
            task.add_done_callback(_kept.discard)

    async def _answer(self, batch: "dict[Key, asyncio.Future[Value | None]]") -> None:
        try:
            found = await self._load(list(batch))
        except asyncio.CancelledError:
            for waiting in batch.values():
                waiting.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is told to whoever asked
            for waiting in batch.values():
                if not waiting.done():
                    waiting.set_exception(error)
                    waiting.exception()  # whoever asked may be gone; then nobody else will look at it
            return
        for key, waiting in batch.items():
            if not waiting.done():
                waiting.set_result(found.get(key))


# The loop itself only holds tasks weakly.
_kept: set[asyncio.Task[None]] = set()
