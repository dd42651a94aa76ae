"""Filters and sort orders of instances, operations and events."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.enums import described
from schema.inputs import KeyValueInput, MoneyInput
from schema.types.health import Health  # described there, before it is used here
from schema.types.money import MICROS_PER_E5, BillingMode
from server.auth.caller import Caller
from server.db.text import is_storable
from server.enums import Billing, InstanceStatus, OperationKind, OperationStatus
from server.events.event import Event, is_hidden
from server.instances.queries import instances, operations

MAX_VALUES = 100  # in one field of a filter
MAX_LABEL_CONDITIONS = 20


@strawberry.input(description="A label with a list of values.")
class LabelValuesInput:
    key: str = strawberry.field(description="Label name, such as team.")
    values: list[str] = strawberry.field(description="Label values, 1 to 100, such as vision.")


@strawberry.input(one_of=True, description="One condition on the labels of an instance.")
class LabelFilter:
    equals: KeyValueInput | None = strawberry.field(default=strawberry.UNSET, description="The label has this value.")
    in_: LabelValuesInput | None = strawberry.field(
        name="in", default=strawberry.UNSET, description="The label has one of these values."
    )
    not_in: LabelValuesInput | None = strawberry.field(
        default=strawberry.UNSET, description="The label is missing or has another value."
    )
    exists: str | None = strawberry.field(default=strawberry.UNSET, description="The label exists, with any value.")
    missing: str | None = strawberry.field(default=strawberry.UNSET, description="The label is missing.")

    def to_domain(self) -> instances.LabelCondition:
        if self.equals:
            return instances.LabelCondition(self.equals.key, (self.equals.value,))
        if self.in_:
            return instances.LabelCondition(self.in_.key, tuple(self.in_.values))
        if self.not_in:
            return instances.LabelCondition(self.not_in.key, tuple(self.not_in.values), is_not=True)
        if isinstance(self.exists, str):
            return instances.LabelCondition(self.exists)
        return instances.LabelCondition(str(self.missing), is_not=True)


@strawberry.input(
    description="Filter for instances; all given conditions must match. Without a filter: all that are not deleted."
)
class InstanceFilter:
    ids: list[strawberry.ID] | None = strawberry.field(default=None, description="Ids of instances, 1 to 100.")
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Any of these statuses. DELETED instances are returned only if requested here."
    )
    name_starts_with: str | None = strawberry.field(default=None, description="Start of the name, case-insensitive.")
    name_contains: str | None = strawberry.field(
        default=None,
        description="Part of the name, case-insensitive. An index is used from three characters on.",
    )
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="All of these labels; short for `equals` in `labelFilters`."
    )
    label_filters: list[LabelFilter] | None = strawberry.field(
        default=None, description="Conditions on labels, at most 20; all must match."
    )
    regions: list[str] | None = strawberry.field(default=None, description="Any of these regions, such as AS-SGP-02.")
    product_names: list[str] | None = strawberry.field(default=None, description="Any of these product names.")
    health: list[Health] | None = strawberry.field(
        default=None, description="Any of these results of the latest health check."
    )
    billings: list[Billing] | None = strawberry.field(
        default=None, description="Any of these requested billing options."
    )
    billing_modes: list[BillingMode] | None = strawberry.field(
        default=None, description="Any of these actual billing modes. OTHER matches nothing."
    )
    min_price_per_hour: MoneyInput | None = strawberry.field(
        default=None, description="Minimum `runningPricePerHour`; no price counts as 0."
    )
    max_price_per_hour: MoneyInput | None = strawberry.field(
        default=None, description="Maximum `runningPricePerHour`; no price counts as 0."
    )
    is_degraded: bool | None = strawberry.field(
        default=None, description="true: only degraded instances; false: only the others."
    )
    stale: bool | None = strawberry.field(
        default=None, description="true: only `stale` instances; false: only the others."
    )
    created_after: datetime | None = strawberry.field(default=None, description="Created after this time.")
    created_before: datetime | None = strawberry.field(default=None, description="Created before this time.")
    ends_before: datetime | None = strawberry.field(
        default=None, description="The next stop or delete of its lifetime is before this time."
    )

    def to_domain(self, by: Caller) -> instances.InstanceFilter:
        labels = [(label.key, label.value) for label in self.labels or ()]
        conditions = [each.to_domain() for each in self.label_filters or ()]
        label_texts = [each for condition in conditions for each in (condition.key, *(condition.values or ()))]
        texts = [
            *(each for pair in labels for each in pair),
            *(self.regions or ()),
            *(self.product_names or ()),
            *label_texts,
        ]
        texts += [self.name_contains or "", self.name_starts_with or ""]
        check_values(self.ids, self.labels, self.regions, self.product_names, texts=texts)
        counts = [len(each.values) for each in conditions if each.values is not None]
        if len(conditions) > MAX_LABEL_CONDITIONS or any(not 1 <= count <= MAX_VALUES for count in counts):
            message = (
                f"A filter has at most {MAX_LABEL_CONDITIONS} conditions on labels, each with 1 to {MAX_VALUES} values."
            )
            raise invalid_filter(message)
        return instances.InstanceFilter(
            owner_id=by.owner_id,
            ids=None if self.ids is None else tuple(ids.parse_or_unused(ids.INSTANCE, id) for id in self.ids),
            statuses=tuple(self.statuses or ()),
            name_starts_with=self.name_starts_with,
            name_contains=self.name_contains,
            labels=tuple(labels),
            label_conditions=tuple(conditions),
            regions=tuple(self.regions or ()),
            product_names=tuple(self.product_names or ()),
            health=tuple(str(each) for each in self.health or ()),
            billings=tuple(self.billings or ()),
            billing_modes=tuple(str(each) for each in self.billing_modes or ()),
            min_price_e5=_price_e5(self.min_price_per_hour, up=True),
            max_price_e5=_price_e5(self.max_price_per_hour, up=False),
            is_degraded=self.is_degraded,
            is_stale=self.stale,
            created_after=self.created_after,
            created_before=self.created_before,
            ends_before=self.ends_before,
        )


class OrderDirection(StrEnum):
    "Sort direction."

    ASC = "ASC"
    DESC = "DESC"


described(
    OrderDirection,
    description="Sort direction.",
    values={
        "ASC": "Ascending: smallest, earliest or A first.",
        "DESC": "Descending: largest, latest or Z first.",
    },
)
described(
    instances.InstanceOrder,
    name="InstanceOrderField",
    description="Field to sort instances by.",
    values={
        "CREATED_AT": "By creation time.",
        "NAME": "By name.",
        "STATUS": "By status name, alphabetically.",
        "STATUS_SINCE": "By time of the last status change.",
        "PRICE": "By price per hour; no price counts as 0.",
        "ENDS_AT": "By the next stop or delete of the lifetime; instances without one are last in both directions.",
    },
)


@strawberry.input(description="Sort order of instances.")
class InstanceOrderBy:
    field: instances.InstanceOrder = strawberry.field(
        default=instances.InstanceOrder.CREATED_AT, description="Field to sort by; equal values are sorted by id."
    )
    direction: OrderDirection = strawberry.field(default=OrderDirection.DESC, description="Sort direction.")

    @property
    def name(self) -> str:
        return f"{self.field.value} {self.direction.value}"

    @property
    def kind(self) -> type[str | int | datetime]:
        """Type of the sort key in its cursors."""
        if self.field is instances.InstanceOrder.PRICE:
            return int
        return datetime if self.field in instances.BY_TIME else str

    @property
    def is_descending(self) -> bool:
        return self.direction is OrderDirection.DESC


@strawberry.input(
    description="Filter for operations; all given conditions must match. Without a filter: all of the project."
)
class OperationFilter:
    instance_id: strawberry.ID | None = strawberry.field(default=None, description="Id of an instance.")
    kinds: list[OperationKind] | None = strawberry.field(default=None, description="Any of these kinds.")
    statuses: list[OperationStatus] | None = strawberry.field(default=None, description="Any of these statuses.")

    def to_domain(self) -> operations.OperationFilter:
        return operations.OperationFilter(
            instance_id=None if self.instance_id is None else ids.parse_or_unused(ids.INSTANCE, self.instance_id),
            kinds=tuple(self.kinds or ()),
            statuses=tuple(self.statuses or ()),
        )


def check_values(*lists: list[Any] | None, texts: list[str]) -> None:
    if any(len(each) > MAX_VALUES for each in lists if each is not None):
        raise invalid_filter(f"A filter field has at most {MAX_VALUES} values.")
    if not all(is_storable(text) for text in texts):
        raise invalid_filter("A filter has text that can't be stored.")


def invalid_filter(message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"code": "INVALID_FILTER"})


def _price_e5(price: MoneyInput | None, *, up: bool) -> int | None:
    """Converts micros to the provider's 1/100000 USD; `up` rounds a minimum up."""
    if price is None:
        return None
    if price.currency != "USD":
        raise invalid_filter("The provider bills in USD.")
    whole, rest = divmod(price.amount_micros, MICROS_PER_E5)
    return whole + 1 if up and rest else whole


@dataclass(frozen=True, slots=True)
class EventFilter:
    """`instance_ids`, `types` and `is_of_instance` go to the table's indexes; `matches` checks the other conditions."""

    instance_ids: Collection[UUID] | None
    types: Collection[str] | None
    statuses: frozenset[str] | None
    labels: dict[str, str]
    is_of_instance: bool = True  # or of the project as a whole
    owner_id: UUID | None = None  # a token that sees only its own instances

    @property
    def needs_matching(self) -> bool:
        return self.statuses is not None or bool(self.labels) or self.owner_id is not None

    def matches(self, event: Event) -> bool:
        if self.is_of_instance == (event.instance_id is None) or is_hidden(event, self.owner_id):
            return False
        if self.statuses is not None and event.data.get("to") not in self.statuses:
            return False
        if not self.labels:
            return True
        instance: dict[str, Any] = event.data.get("instance") or {}
        labels: dict[str, str] = instance.get("labels") or {}
        return self.labels.items() <= labels.items()


@strawberry.input(description="Filter for events of the project. Without a filter: all.")
class ProjectEventFilter:
    types: list[str] | None = strawberry.field(default=None, description="Event types, such as balance.low.")

    def to_domain(self, by: Caller) -> EventFilter:
        check_values(self.types, texts=self.types or [])
        return EventFilter(
            instance_ids=None, types=self.types, statuses=None, labels={}, is_of_instance=False, owner_id=by.owner_id
        )


@strawberry.input(
    description="Filter for events; all given conditions must match. Without a filter: all of the project."
)
class InstanceEventFilter:
    ids: list[strawberry.ID] | None = strawberry.field(default=None, description="Ids of instances.")
    types: list[str] | None = strawberry.field(default=None, description="Event types, such as instance.ready.")
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Only changes to one of these statuses."
    )
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="Only events whose instance has all of these labels."
    )

    def to_domain(self, by: Caller) -> EventFilter:
        """Raises NotFound for a malformed id."""
        check_values(self.ids, self.types, self.labels, texts=self.types or [])
        return EventFilter(
            instance_ids=None if self.ids is None else [ids.parse(ids.INSTANCE, id) for id in self.ids],
            types=self.types,
            statuses=None if self.statuses is None else frozenset(str(status) for status in self.statuses),
            labels={label.key: label.value for label in self.labels or ()},
            owner_id=by.owner_id,
        )
