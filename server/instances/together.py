"""Those who come while something is being written are written together, next: many small commits become a few."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Together(Generic[Item, Result]):
    """`write` gets what waits, at most `largest` of it, and answers each in its place: with a result or an exception.

    Whoever comes alone waits for nobody. At most `at_once` batches are under way: with two, one is prepared here while
    the server works on the other.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        largest: int,
        at_once: int = 1,
    ) -> None:
        self._write = write
        self._largest = largest
        self._at_once = at_once
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself only holds them weakly

    async def add(self, item: Item) -> Result:
        """What `write` answers to this one. Whoever goes away before it is written is left out."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._under_way < self._at_once:
            self._under_way += 1
            # In a context of its own: what it logs is not the first one's affair.
            task = asyncio.create_task(self._run(), name="together", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _run(self) -> None:
        try:
            await self._write_all()
        finally:
            # In the same breath in which nobody was found waiting: whoever comes next begins anew.
            self._under_way -= 1

    async def _write_all(self) -> None:
        while batch := self._next():
            items = [item for item, _ in batch]
            try:
                results: Sequence[Result | Exception] = await self._write(items)
            except asyncio.CancelledError:
                for _, answer in batch:
                    answer.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - it is told to everybody whom it concerns
                results = [error] * len(batch)
            for (_, answer), result in zip(batch, results, strict=True):
                if answer.done():
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _next(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        while self._waiting and len(batch) < self._largest:
            item, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((item, answer))
        return batch
