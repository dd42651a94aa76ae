"""Types of the market: offers, their history, and the filter that chooses them."""

from datetime import datetime, timedelta
from operator import attrgetter

import strawberry

from schema.context import Info
from schema.filters import check_values, invalid_filter
from schema.loaded import Lookup
from schema.types.money import BillingMode, Money
from server.db import tables
from server.market.history import Bucket
from server.market.queries import OfferFilter, key_of
from server.market.tape import OfferKey


@strawberry.input(description="Filter for offers; all given conditions must match.")
class MarketFilter:
    product_names: list[str] | None = strawberry.field(
        default=None, description="Any of these products, by their whole name, 1 to 100."
    )
    regions: list[str] | None = strawberry.field(default=None, description="Any of these region codes, 1 to 100.")
    billing_modes: list[BillingMode] | None = strawberry.field(default=None, description="Any of these billing modes.")
    gpu_count: int = strawberry.field(default=1, description="GPUs of one machine, 1 to 8; 0 for CPU products.")
    available_only: bool = strawberry.field(default=False, description="Only what is in stock.")

    def to_domain(self) -> OfferFilter:
        check_values(
            self.product_names,
            self.regions,
            self.billing_modes,
            texts=[*(self.product_names or ()), *(self.regions or ())],
        )
        check_gpu_count(self.gpu_count)
        return OfferFilter(
            product_names=None if self.product_names is None else tuple(self.product_names),
            regions=None if self.regions is None else tuple(self.regions),
            modes=None if self.billing_modes is None else tuple(mode.value for mode in self.billing_modes),
            gpu_count=self.gpu_count,
            available_only=self.available_only,
        )


def check_gpu_count(count: int) -> None:
    if not 0 <= count <= 8:
        raise invalid_filter("gpuCount must be 0 to 8.")


_NAMED_KEY = attrgetter("key", "product_name")
AVAILABLE_FOR = Lookup(attrgetter("availability"), _NAMED_KEY, attrgetter("length"), is_shared=True)
LAST_AVAILABLE = Lookup(attrgetter("availability"), _NAMED_KEY, attrgetter("last_at"), is_shared=True)


@strawberry.type(description="A product in one region and billing mode, for one number of GPUs, as last seen.")
class MarketOffer:
    key: strawberry.Private[OfferKey]
    region: str = strawberry.field(description="Region code, such as AS-SGP-02.")
    product_id: str = strawberry.field(description="The provider's id of the product.")
    product_name: str = strawberry.field(description="Product name, such as RTX 4090 24GB.")
    billing_mode: BillingMode | None = strawberry.field(description="Billing mode.")
    gpu_count: int = strawberry.field(description="GPUs of one machine; 0 for a CPU product.")
    price_per_hour: Money | None = strawberry.field(
        description="Price of the whole machine per hour; null if it is not sold in this mode."
    )
    is_available: bool = strawberry.field(description="Whether it is in stock.")
    inventory: str | None = strawberry.field(description="The provider's stock level: none, low, normal or high.")
    seen_at: datetime = strawberry.field(description="When the provider last listed it.")
    changed_at: datetime = strawberry.field(description="When its price or stock last changed.")

    @strawberry.field(
        description="For how long it was in stock in the last 30 days, as far as it was watched.",
        metadata=AVAILABLE_FOR.metadata,
    )
    async def available_for_30d(self, info: Info) -> timedelta:
        return await AVAILABLE_FOR.load(self, info)

    @strawberry.field(
        description="When it was last in stock, now if it is; null: never, as far as it was polled.",
        metadata=LAST_AVAILABLE.metadata,
    )
    async def last_available_at(self, info: Info) -> datetime | None:
        return await LAST_AVAILABLE.load(self, info)

    @property
    def state(self) -> tuple[OfferKey, int | None, bool, str | None]:
        """What a subscriber wants to know of."""
        return (self.key, self.price_per_hour and self.price_per_hour.amount_micros, self.is_available, self.inventory)

    @classmethod
    def of(cls, row: tables.OfferRow) -> "MarketOffer":
        return cls(
            key=key_of(row),
            region=row.region,
            product_id=row.product_id,
            product_name=row.product_name,
            billing_mode=BillingMode.of(row.mode),
            gpu_count=row.gpu_count,
            price_per_hour=Money.of(row.price_e5),
            is_available=row.is_available,
            inventory=row.inventory,
            seen_at=row.seen_at,
            changed_at=row.changed_at,
        )


@strawberry.type(description="Price and stock in a part of a time. Prices are those of the cheapest in stock.")
class OfferBucket:
    begin: datetime = strawberry.field(name="from", description="When it begins.")
    min: Money | None = strawberry.field(description="Lowest price; null if it was never in stock.")
    max: Money | None = strawberry.field(description="Highest price; null if it was never in stock.")
    last: Money | None = strawberry.field(description="Price at its end; null if it was not in stock then.")
    available_for: timedelta = strawberry.field(description="For how long it was in stock.")

    @classmethod
    def of(cls, bucket: Bucket) -> "OfferBucket":
        return cls(
            begin=bucket.begin,
            min=Money.of(bucket.min_e5),
            max=Money.of(bucket.max_e5),
            last=Money.of(bucket.last_e5),
            available_for=bucket.available_for,
        )
