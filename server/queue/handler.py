"""What a kind of work brings along: how it is run, and what is written when it is given up."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.queue.claim import Claim
from server.queue.outcome import Failure, Outcome

# Any: each handler takes its own subclass of Work, and the table of handlers is keyed by kind.
Run = Callable[[Any, Claim], Awaitable[Outcome]]
Failed = Callable[[AsyncSession, Any, Failure], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Handler:
    """`run` may be called more than once for the same job, so it asks what is true before it acts.

    `failed` writes in the very transaction that ends the job, so that what the job was for ends together with it.
    """

    run: Run
    failed: Failed | None = None
