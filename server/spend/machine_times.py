"""What the provider says of a machine's runs and its price."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from server.db.tables import Instance

PRICE_CHANGE_MAX = 1 / 3  # of the offer's price


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """When the provider says that the machine was last started and stopped, and what an hour of it costs."""

    started_at: datetime | None = None
    stopped_at: datetime | None = None
    price_e5: int | None = None

    def price_of(self, row: Instance) -> dict[str, Any]:
        """The column of what the provider charges: a price may have changed since the offer was read.

        No document says for what `instancePrice` is. One that is far from the offer's is not for the whole machine.
        """
        price_e5 = self.charged(row.price_per_hour_e5)
        return {} if price_e5 is None else {"price_per_hour_e5": price_e5}

    def charged(self, offered_e5: int | None) -> int | None:
        """None if it is not known."""
        known = offered_e5 or self.price_e5
        if not known or not self.price_e5 or abs(self.price_e5 - known) > PRICE_CHANGE_MAX * known:
            return None
        return self.price_e5

    @property
    def missed_run(self) -> tuple[datetime, datetime] | None:
        """A run that is over."""
        if self.started_at is None or self.stopped_at is None or self.stopped_at <= self.started_at:
            return None
        return self.started_at, self.stopped_at

    @property
    def run_began_at(self) -> datetime | None:
        """None if it has not said when the present run began."""
        if self.started_at is None or (self.stopped_at is not None and self.stopped_at >= self.started_at):
            return None
        return self.started_at

    @property
    def pause(self) -> tuple[datetime, datetime] | None:
        """From the end of the run before to the beginning of the present one."""
        began_at = self.run_began_at
        return None if began_at is None or self.stopped_at is None else (self.stopped_at, began_at)


NO_TIMES = MachineTimes()
