"""Types and inputs of waiting for capacity."""

from datetime import datetime, timedelta

import strawberry

from schema.enums import described
from schema.types.money import BillingMode, Money
from server.conversion import convert
from server.market import waiting_view
from server.market.wait_draft import USUAL_PRIORITY, WaitDraft
from server.market.waiting_view import CapacityWaitView, WaitBlocker

described(
    WaitBlocker,
    description="What an operation that waits for capacity lacks.",
    values={
        "CAPACITY": "Nothing that fits is in stock.",
        "PRICE": "What is in stock costs more than maxHourlyPrice.",
        "BUDGET": "A budget has too little left; it is looked at when one changes, at least every minute.",
        "QUOTA": "A quota is used up; it is looked at when one changes, at least every minute.",
        "QUEUE": "Something that fits is in stock, and goes to others first.",
        "OTHER": "Another reason, of a newer version of the server.",
    },
)
UNTIL = "When the wait ends, with WAIT_EXPIRED: 60 s to 30 days from now."


@strawberry.input(one_of=True, description="How long to wait: for a time, or until one.")
class WaitInput:
    for_: timedelta | None = strawberry.field(
        name="for", default=strawberry.UNSET, description="For so long, 60 to 2592000 seconds."
    )
    until: datetime | None = strawberry.field(default=strawberry.UNSET, description=UNTIL)

    @property
    def length(self) -> timedelta | None:
        return None if self.for_ is strawberry.UNSET else self.for_

    @property
    def end(self) -> datetime | None:
        return None if self.until is strawberry.UNSET else self.until


@strawberry.input(description="What to do while the provider has no capacity: wait for it in a fair order.")
class NoCapacityInput:
    wait: WaitInput = strawberry.field(description="How long to wait.")
    priority: int = strawberry.field(
        default=USUAL_PRIORITY,
        description="0 to 100; among the waiting operations of a project the highest goes first, then the oldest. "
        "Projects take turns, whatever their priorities.",
    )

    def to_domain(self) -> WaitDraft:
        return WaitDraft(self.wait.length, self.wait.end, self.priority)


@strawberry.type(description="An offer that an operation waits for.")
class WaitedOffer:
    region: str = strawberry.field(description="Region code, such as AS-SGP-02.")
    billing_mode: BillingMode | None = strawberry.field(description="Billing mode.")
    price_per_hour: Money | None = strawberry.field(description="Price per hour of the whole instance.")
    last_available_at: datetime | None = strawberry.field(
        description="When it was last seen in stock; null: not since the market is watched."
    )

    @classmethod
    def of(cls, offer: waiting_view.WaitedOffer) -> "WaitedOffer":
        return convert(cls, offer, billing_mode=BillingMode.of(offer.mode), price_per_hour=Money.of(offer.price_e5))


@strawberry.type(description="How an operation waits for capacity. No call of the provider is made for it meanwhile.")
class CapacityWait:
    since: datetime = strawberry.field(description="When the operation was accepted; its place counts from here.")
    until: datetime = strawberry.field(description="When the wait ends, with WAIT_EXPIRED.")
    priority: int = strawberry.field(description="Priority within its project, 0 to 100.")
    position: int = strawberry.field(
        description="Place among the operations of this project that wait for the same product, counted from 1."
    )
    ahead: int = strawberry.field(description="How many of them go first.")
    tries: int = strawberry.field(description="How often an offer was taken up and then refused by the provider.")
    blocked_by: WaitBlocker = strawberry.field(description="What it lacks now.")
    last_polled_at: datetime | None = strawberry.field(
        description="When the provider's offers were last read for it; null: not yet."
    )
    offers: list[WaitedOffer] = strawberry.field(
        description="The offers that would fit, also those above maxHourlyPrice, the cheapest first."
    )

    @classmethod
    def of(cls, view: CapacityWaitView) -> "CapacityWait":
        offers = [WaitedOffer.of(offer) for offer in view.offers]
        return convert(cls, view, position=view.ahead + 1, offers=offers)
