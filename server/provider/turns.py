"""Turns of jobs at the provider: a job that calls it is claimed once its class may make a call."""

from collections.abc import Mapping, Sequence

from server.novita.transport.budget import CallPriority
from server.novita.transport.rate_limiter import CallRateLimiter, Turn
from server.queue.kinds import JobClass

CALLS: Mapping[JobClass, CallPriority] = {
    JobClass.ENDS: CallPriority.END,
    JobClass.WATCHING: CallPriority.POLL,
    JobClass.STARTS: CallPriority.START,
    JobClass.CREATES: CallPriority.CREATE,
}


class CallTurns:
    """One call of the budget for each turn."""

    def __init__(self, limiter: CallRateLimiter) -> None:
        self._limiter = limiter

    async def take(self, job_class: JobClass, at_most: int) -> Sequence[Turn]:
        """Wait for the first; more only if they can be had at once."""
        return await self._limiter.turns(CALLS[job_class], at_most)
