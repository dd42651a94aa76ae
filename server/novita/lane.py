"""How many calls of one route may be under way at once, so that a slow route takes its own connections only."""

from server.novita.priority import Priority, Waiters


class Lane:
    """The slots of one route. A quarter of them is kept for user-driven calls: when polling meets a route that answers
    slowly, a person's call still finds a slot."""

    def __init__(self, route: str, slots: int) -> None:
        self._route = route
        self._free = slots
        self._kept_for_users = slots // 4
        self._waiters = Waiters()

    def try_take(self, priority: Priority) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        if self._waiters or not self._may_go(priority):
            return False
        self._free -= 1
        return True

    async def take(self, priority: Priority, *, seconds: float) -> None:
        """Wait for a slot; raises RateLimited when none comes in time."""
        turn = self._waiters.join(self._route, priority, seconds=seconds)
        self._let_go()
        await self._waiters.wait(turn, self._route, priority, give_back=self.give_back)

    def give_back(self) -> None:
        self._free += 1
        self._let_go()

    def _may_go(self, priority: Priority) -> bool:
        return self._free > (self._kept_for_users if priority is Priority.POLL else 0)

    def _let_go(self) -> None:
        while self._free > 0 and self._waiters.call_next(polls=self._may_go(Priority.POLL)):
            self._free -= 1
