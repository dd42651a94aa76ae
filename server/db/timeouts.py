"""Bounds that the server enforces on our connections: a frozen process or a dead machine frees its locks soon."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
from asyncpg.transaction import Transaction

if TYPE_CHECKING:  # the driver's class takes no parameters at run time
    RawConnection = asyncpg.Connection[asyncpg.Record]
else:
    RawConnection = asyncpg.Connection


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`statement` is the client's own timeout; `lock` of one wait for a lock; `idle` of a silent transaction."""

    statement: timedelta = timedelta(seconds=30)
    lock: timedelta = timedelta(seconds=15)
    idle: timedelta = timedelta(seconds=10)

    def startup_parameters(self) -> dict[str, str]:
        """For a connection to the server itself."""
        return {**self._parameters(), **KEEPALIVES}

    def set_local(self) -> str:
        """For one transaction through a pooler, which refuses startup parameters and shares its connections."""
        return "; ".join(f"SET LOCAL {name} = {value}" for name, value in self._parameters().items())

    def _parameters(self) -> dict[str, str]:
        return {
            # Twice the client's: if the server ended a commit's wait for its synchronous standby first, the client
            # would take the commit for a replicated one.
            "statement_timeout": _milliseconds(self.statement * 2),
            "lock_timeout": _milliseconds(self.lock),
            "idle_in_transaction_session_timeout": _milliseconds(self.idle),
        }


# A client whose machine is gone is noticed within 25 seconds, also when the server waits for it in the middle of an
# exchange, where no other timeout applies.
KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
}


def bounded_connection(timeouts: Timeouts) -> type[RawConnection]:
    """A connection through a pooler: each of its transactions begins with the bounds, in one more round trip."""
    bounds = timeouts.set_local()

    class BoundedTransaction(Transaction):
        async def start(self) -> None:
            await super().start()
            try:
                await self._connection.execute(bounds)
            except BaseException:
                await self.rollback()
                raise

    class BoundedConnection(RawConnection):
        def transaction(self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False) -> Any:
            return BoundedTransaction(self, isolation, readonly, deferrable)

    return BoundedConnection


def _milliseconds(duration: timedelta) -> str:
    return str(max(1, min(int(duration.total_seconds() * 1000), 2**31 - 1)))
