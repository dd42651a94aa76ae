"""Numbers that change all the time, as callers watch them."""

import strawberry

from schema.types.money import Money
from server.events.cursor import Cursor
from server.instances import stats
from server.words import InstanceStatus


@strawberry.type(description="How many instances are in one status.")
class StatusCount:
    status: InstanceStatus = strawberry.field(description="The status.")
    count: int = strawberry.field(description="How many.")


@strawberry.type(description="The project's instances in numbers.")
class FleetStats:
    found: strawberry.Private[stats.FleetStats]
    cursor: str = strawberry.field(description="The place in the log at which these numbers hold.")
    total: int = strawberry.field(description="All instances that are not deleted.")
    by_status: list[StatusCount] = strawberry.field(description="By status, those without any left out.")
    price_per_hour: Money | None = strawberry.field(description="What those that run cost an hour, all together.")

    @classmethod
    def of(cls, found: stats.FleetStats, cursor: Cursor) -> "FleetStats":
        return cls(
            found=found,
            cursor=str(cursor),
            total=sum(found.by_status.values()),
            by_status=[StatusCount(status=status, count=count) for status, count in sorted(found.by_status.items())],
            price_per_hour=Money.of(found.price_per_hour_e5),
        )
