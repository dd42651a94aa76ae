"""Instances whose fields are converted from the row when they are selected."""

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, ClassVar

from strawberry.utils.str_converters import to_camel_case

from schema import ids
from schema.types.event import InstanceSnapshot
from schema.types.instance import Instance
from schema.types.instance_parts import DERIVED
from server.db import tables


class Lazy:
    """Has the same values as `of` of the type that it stands for."""

    row_fields: ClassVar[frozenset[str]] = frozenset()  # attributes that the row has under the same name
    made_fields: ClassVar[dict[str, Callable[..., Any]]] = {}  # functions of row, `seen_at` and `at`

    def __init__(
        self, row: tables.InstanceLike, *, seen_at: datetime | None = None, at: datetime | None = None
    ) -> None:
        self.row = row
        self.seen_at = seen_at
        self.at = at


class LazyInstance(Lazy, Instance):
    stands_for: ClassVar = Instance


class LazySnapshot(Lazy, InstanceSnapshot):
    stands_for: ClassVar = InstanceSnapshot


def _id(self: Lazy) -> str:
    return ids.format_id(ids.INSTANCE, self.row.id)


def _derived(make: Callable[..., Any], self: Lazy) -> Any:
    return make(self.row, self.seen_at, self.at)


def _define(lazy: type[Lazy], kind: type[Any], identity: dict[str, Callable[[Any], Any]]) -> None:
    """Give the class a property for each field."""
    names = [each.name for each in fields(kind) if each.init]  # the others have resolvers
    for name in names:
        derived = partial(_derived, DERIVED[name].make) if name in DERIVED else attrgetter(f"row.{name}")
        setattr(lazy, name, property(identity.get(name) or derived))
    # A status as text has the same name in a response as the enum's member.
    lazy.row_fields = frozenset(names) - DERIVED.keys() - identity.keys() | {"status"}
    lazy.made_fields = {name: each.make for name, each in DERIVED.items() if name not in lazy.row_fields}


_define(LazyInstance, Instance, {"row_id": attrgetter("row.id"), "id": _id})
_define(LazySnapshot, InstanceSnapshot, {"instance_id": _id})

# The columns that each field is made from, by its name in documents.
_COLUMNS: dict[str, tuple[str, ...]] = {
    to_camel_case(name): DERIVED[name].columns if name in DERIVED else (name,)
    for name in {*LazyInstance.row_fields, *DERIVED}
}


@lru_cache(maxsize=500)
def columns_for(selected: frozenset[str]) -> frozenset[str]:
    """The columns that instances need if only fields of these names are selected."""
    return frozenset(column for name in selected for column in _COLUMNS.get(name, ()))
