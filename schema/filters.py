"""Which instances and operations, and in which order."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.inputs import KeyValueInput
from schema.words import described
from server.db import tables
from server.instances import reads
from server.instances.drafts import is_storable
from server.words import InstanceStatus, OperationKind, OperationStatus

MOST = 100  # of anything in one filter


@strawberry.input(description="Which instances; without it, all that are not deleted. All that is given must be so.")
class InstanceFilter:
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Only those in one of these statuses. The only way to see DELETED ones."
    )
    name_contains: str | None = strawberry.field(
        default=None, description="Only those whose name has this in it; capital or small letters are the same."
    )
    labels: list[KeyValueInput] | None = strawberry.field(default=None, description="Only those with all these labels.")
    regions: list[str] | None = strawberry.field(default=None, description="Only those made in one of these regions.")
    product_names: list[str] | None = strawberry.field(default=None, description="Only of one of these products.")
    created_after: datetime | None = strawberry.field(default=None, description="Only those asked for after this.")
    created_before: datetime | None = strawberry.field(default=None, description="Only those asked for before this.")

    def to_read(self) -> reads.InstanceFilter:
        labels = [(label.key, label.value) for label in self.labels or ()]
        texts = [*(each for pair in labels for each in pair), *(self.regions or ()), *(self.product_names or ())]
        _check(self.labels, self.regions, self.product_names, texts=[*texts, self.name_contains or ""])
        return reads.InstanceFilter(
            statuses=tuple(self.statuses or ()),
            name_contains=self.name_contains,
            labels=tuple(labels),
            regions=tuple(self.regions or ()),
            product_names=tuple(self.product_names or ()),
            created_after=_aware(self.created_after),
            created_before=_aware(self.created_before),
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
    def is_time(self) -> bool:
        return self.field is reads.InstanceOrder.CREATED_AT

    def value_of(self, row: tables.Instance) -> Any:
        return getattr(row, reads.SORTED_BY[self.field].key)


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
        raise GraphQLError(f"A filter has at most {MOST} of each.", extensions={"code": "INVALID_FILTER"})
    if not all(is_storable(text) for text in texts):
        raise GraphQLError("A filter has text that can't be stored.", extensions={"code": "INVALID_FILTER"})


def _aware(moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise GraphQLError("A time needs its zone, such as Z.", extensions={"code": "INVALID_FILTER"})
    return moment
