"""Which events."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.inputs import KeyValueInput
from server.events.event import Event
from server.words import InstanceStatus

MOST = 100  # of anything in one filter


@dataclass(frozen=True, slots=True)
class Wanted:
    """`instance_ids` and `types` are for the table's indexes; `matches` decides about the rest."""

    instance_ids: Collection[UUID] | None
    types: Collection[str] | None
    statuses: frozenset[str] | None
    labels: dict[str, str]

    @property
    def is_picky(self) -> bool:
        return self.statuses is not None or bool(self.labels)

    def matches(self, event: Event) -> bool:
        if self.statuses is not None and event.data.get("to") not in self.statuses:
            return False
        if not self.labels:
            return True
        instance: dict[str, Any] = event.data.get("instance") or {}
        labels: dict[str, str] = instance.get("labels") or {}
        return self.labels.items() <= labels.items()


@strawberry.input(description="Which events; without it, all of the project's. All that is given must be so.")
class InstanceEventFilter:
    ids: list[strawberry.ID] | None = strawberry.field(default=None, description="Only of these instances.")
    types: list[str] | None = strawberry.field(default=None, description="Only of these types.")
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Only moves to one of these statuses."
    )
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="Only events that show their instance with all these labels."
    )

    def to_read(self) -> Wanted:
        """Raises NotFound for an id that no instance can have."""
        lists: list[list[Any] | None] = [self.ids, self.types, self.labels]
        if any(len(each) > MOST for each in lists if each is not None):
            raise GraphQLError(f"A filter has at most {MOST} of each.", extensions={"code": "INVALID_FILTER"})
        if any("\x00" in each for each in self.types or ()):
            raise GraphQLError("A filter has text that can't be stored.", extensions={"code": "INVALID_FILTER"})
        return Wanted(
            instance_ids=None if self.ids is None else [ids.read(ids.INSTANCE, id) for id in self.ids],
            types=self.types,
            statuses=None if self.statuses is None else frozenset(str(status) for status in self.statuses),
            labels={label.key: label.value for label in self.labels or ()},
        )
