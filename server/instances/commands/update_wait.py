"""Changes how long an operation waits for capacity, and its priority."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import now
from server.db.tables import Operation
from server.enums import OPEN_OPERATION
from server.errors import Invalid, NotFound, Problem
from server.instances import operations
from server.instances.queries import operations as reads
from server.market import waits
from server.market.wait_draft import Wish, end_of, priority_problems, wait_problems

PATH = ("input", "operationId")


@dataclass(frozen=True, slots=True)
class WaitChange:
    """What is None stays: the end if neither `length` nor `until` is given, and the priority."""

    length: timedelta | None = None
    until: datetime | None = None
    priority: int | None = None

    @property
    def is_longer(self) -> bool:
        """Whether it has another end."""
        return self.length is not None or self.until is not None

    def check(self) -> None:
        problems: list[Problem] = []
        if self.is_longer:
            problems += wait_problems(self.length, self.until, ("input", "wait"), at=now())
        if self.priority is not None:
            problems += priority_problems(self.priority, ("input", "priority"))
        if not self.is_longer and self.priority is None:
            problems.append(Problem("INVALID_WAIT", "Give another end of the wait, or another priority.", ("input",)))
        if problems:
            raise Invalid(problems)


async def update_wait(session: AsyncSession, operation_id: UUID, change: WaitChange, *, by: Caller) -> Operation:
    """Also before the operation waits. Raises Refused if it may not wait, or has ended."""
    change.check()
    found = await reads.get_operation(session, operation_id, by=by)
    if found is None:
        raise NotFound("operation", PATH)
    operation = await operations.lock_open(session, operation_id)
    waiting = None if operation is None else await waits.load(session, operation)
    if operation is None or waiting is None or operation.status not in OPEN_OPERATION:
        message = "It has ended." if operation is None else "It was not requested to wait for capacity."
        raise Invalid([Problem("INVALID_WAIT", message, PATH)])
    wish = Wish(
        end_of(change.length, change.until, at=now()) if change.is_longer else waiting.until,
        waiting.wish.priority if change.priority is None else change.priority,
    )
    operation = await operations.set_wish(session, operation, wish)
    if waiting.row is not None:
        await waits.change(session, waiting.row, wish)
    return operation
