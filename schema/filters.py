"""Which instances and operations, and in which order."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.inputs import KeyValueInput, MoneyInput
from schema.types.billing import BillingMode
from schema.types.money import MICROS_PER_E5
from schema.words import described
from server.errors import NotFound
from server.instances import reads
from server.instances.drafts import is_storable
from server.probes.check import Health
from server.words import Billing, InstanceStatus, OperationKind, OperationStatus

MOST = 100  # of anything in one filter
MOST_CONDITIONS = 20


@strawberry.input(description="A label, and values of it.")
class LabelValuesInput:
    key: str = strawberry.field(description="The label, such as team.")
    values: list[str] = strawberry.field(description="Its values, 1 to 100, such as vision.")


@strawberry.input(one_of=True, description="One condition on the labels of an instance.")
class LabelFilter:
    equals: KeyValueInput | None = strawberry.field(
        default=strawberry.UNSET, description="It has this label with this value."
    )
    in_: LabelValuesInput | None = strawberry.field(
        name="in", default=strawberry.UNSET, description="It has this label with one of these values."
    )
    not_in: LabelValuesInput | None = strawberry.field(
        default=strawberry.UNSET, description="It has not: without the label, or with another value."
    )
    exists: str | None = strawberry.field(
        default=strawberry.UNSET, description="It has this label, with whatever value."
    )
    missing: str | None = strawberry.field(default=strawberry.UNSET, description="It has not got this label.")

    def to_read(self) -> reads.LabelCondition:
        if self.equals:
            return reads.LabelCondition(self.equals.key, (self.equals.value,))
        if self.in_:
            return reads.LabelCondition(self.in_.key, tuple(self.in_.values))
        if self.not_in:
            return reads.LabelCondition(self.not_in.key, tuple(self.not_in.values), is_not=True)
        if isinstance(self.exists, str):
            return reads.LabelCondition(self.exists)
        return reads.LabelCondition(str(self.missing), is_not=True)


@strawberry.input(description="Which instances; without it, all that are not deleted. All that is given must be so.")
class InstanceFilter:
    ids: list[strawberry.ID] | None = strawberry.field(default=None, description="Only these, 1 to 100.")
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Only those in one of these statuses. The only way to see DELETED ones."
    )
    name_starts_with: str | None = strawberry.field(
        default=None, description="Only those whose name begins so; capital or small letters are the same."
    )
    name_contains: str | None = strawberry.field(
        default=None,
        description="Only those whose name has this in it; capital or small letters are the same. From three letters "
        "on it is quick in any fleet.",
    )
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="Only those with all these labels: short for `equals` in `labelFilters`."
    )
    label_filters: list[LabelFilter] | None = strawberry.field(
        default=None, description="Only those whose labels fit all of these, at most 20."
    )
    regions: list[str] | None = strawberry.field(
        default=None, description="Only those made in one of these regions, such as AS-SGP-02."
    )
    product_names: list[str] | None = strawberry.field(default=None, description="Only of one of these products.")
    health: list[Health] | None = strawberry.field(
        default=None, description="Only those that were found so by their last probes."
    )
    billings: list[Billing] | None = strawberry.field(
        default=None, description="Only those that were asked for in one of these ways to pay."
    )
    billing_modes: list[BillingMode] | None = strawberry.field(
        default=None, description="Only those that are paid in one of these ways. OTHER finds nothing."
    )
    min_price_per_hour: MoneyInput | None = strawberry.field(
        default=None, description="Only those that cost this or more; one without a price costs 0."
    )
    max_price_per_hour: MoneyInput | None = strawberry.field(
        default=None, description="Only those that cost this or less; one without a price costs 0."
    )
    stale: bool | None = strawberry.field(
        default=None, description="true: only those whose row is `stale`; false: only the others."
    )
    created_after: datetime | None = strawberry.field(default=None, description="Only those asked for after this.")
    created_before: datetime | None = strawberry.field(default=None, description="Only those asked for before this.")

    def to_read(self) -> reads.InstanceFilter:
        labels = [(label.key, label.value) for label in self.labels or ()]
        conditions = [each.to_read() for each in self.label_filters or ()]
        told = [each for condition in conditions for each in (condition.key, *(condition.values or ()))]
        texts = [*(each for pair in labels for each in pair), *(self.regions or ()), *(self.product_names or ()), *told]
        texts += [self.name_contains or "", self.name_starts_with or ""]
        _check(self.ids, self.labels, self.regions, self.product_names, texts=texts)
        counts = [len(each.values) for each in conditions if each.values is not None]
        if len(conditions) > MOST_CONDITIONS or any(not 1 <= count <= MOST for count in counts):
            message = f"A filter has at most {MOST_CONDITIONS} conditions on labels, each with 1 to {MOST} values."
            raise _invalid(message)
        return reads.InstanceFilter(
            ids=None if self.ids is None else tuple(map(_instance_id, self.ids)),
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
            is_stale=self.stale,
            created_after=self.created_after,
            created_before=self.created_before,
        )


class OrderDirection(StrEnum):
    """Which way round."""

    ASC = "ASC"
    DESC = "DESC"


described(
    OrderDirection,
    description="Which way round a list is sorted.",
    values={
        "ASC": "From small to large, from early to late, from A to Z.",
        "DESC": "From large to small, from late to early, from Z to A.",
    },
)
described(
    reads.InstanceOrder,
    name="InstanceOrderField",
    description="What instances can be sorted by.",
    values={
        "CREATED_AT": "When they were asked for.",
        "NAME": "Their names.",
        "STATUS": "The words for their statuses, by the alphabet.",
        "STATUS_SINCE": "Since when they have their status.",
        "PRICE": "What they cost an hour; those without a price cost 0.",
    },
)


@strawberry.input(description="The order of instances.")
class InstanceOrderBy:
    field: reads.InstanceOrder = strawberry.field(
        default=reads.InstanceOrder.CREATED_AT, description="What to sort by; among equals their ids decide."
    )
    direction: OrderDirection = strawberry.field(default=OrderDirection.DESC, description="Which way round.")

    @property
    def name(self) -> str:
        return f"{self.field.value} {self.direction.value}"

    @property
    def kind(self) -> type[str | int | datetime]:
        """What its cursors hold."""
        if self.field is reads.InstanceOrder.PRICE:
            return int
        return datetime if self.field in (reads.InstanceOrder.CREATED_AT, reads.InstanceOrder.STATUS_SINCE) else str


@strawberry.input(description="Which operations; without it, all of the project. All that is given must be so.")
class OperationFilter:
    instance_id: strawberry.ID | None = strawberry.field(default=None, description="Only of this instance.")
    kinds: list[OperationKind] | None = strawberry.field(default=None, description="Only of these verbs.")
    statuses: list[OperationStatus] | None = strawberry.field(
        default=None, description="Only those in one of these statuses."
    )

    def to_read(self) -> reads.OperationFilter:
        """Raises NotFound for an id that no instance has."""
        return reads.OperationFilter(
            instance_id=None if self.instance_id is None else ids.read(ids.INSTANCE, self.instance_id),
            kinds=tuple(self.kinds or ()),
            statuses=tuple(self.statuses or ()),
        )


def _check(*lists: list[Any] | None, texts: list[str]) -> None:
    if any(len(each) > MOST for each in lists if each is not None):
        raise _invalid(f"A filter has at most {MOST} of each.")
    if not all(is_storable(text) for text in texts):
        raise _invalid("A filter has text that can't be stored.")


def _invalid(message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"code": "INVALID_FILTER"})


def _instance_id(id: str) -> UUID:
    """What is no id of an instance is nobody's."""
    try:
        return ids.read(ids.INSTANCE, id)
    except NotFound:
        return ids.NOBODY


def _price_e5(price: MoneyInput | None, *, up: bool) -> int | None:
    """The provider's prices have one digit less."""
    if price is None:
        return None
    if price.currency != "USD":
        raise _invalid("The provider bills in USD.")
    whole, rest = divmod(price.amount_micros, MICROS_PER_E5)
    return whole + 1 if up and rest else whole
