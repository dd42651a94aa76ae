"""How values become their values in a response: one at a time, or all values of a field in a list at once.

Both raise on anything unexpected: another class, a null that is not allowed, a value that a scalar refuses.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from types import NoneType
from typing import Any

from graphql import FieldNode, GraphQLEnumType

from schema.loaded import Lookup
from server.graphql.execution.fields import Unexpected, coercer_of, is_iso, is_plain

LISTS = frozenset({list, tuple})


class Shape(ABC):
    """`run` gets what has to be loaded before the response is complete."""

    @abstractmethod
    def one(self, value: Any, run: "Run") -> Any:
        raise NotImplementedError

    @abstractmethod
    def many(self, values: Sequence[Any], run: "Run") -> Sequence[Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class LoadedField:
    """A field that is loaded. `shape` completes its value, `definition` has its arguments."""

    name: str
    loaded: Lookup
    shape: Shape
    definition: Any
    node: FieldNode


# What one execution has to load: keys, and the objects of the response that wait for the values.
Run = dict[LoadedField, list[tuple[Any, dict[str, Any]]]]


class Leaf(Shape):
    """The usual Python classes of a scalar stay as they are; the scalar itself converts everything else."""

    def __init__(self, type: Any, plain: frozenset[type[Any]], *, is_nullable: bool) -> None:
        self._coerce = coercer_of(type)
        self._plain = plain | {NoneType} if is_nullable else plain

    def one(self, value: Any, run: Run) -> Any:
        return value if value.__class__ in self._plain else self._coerce(value)

    def many(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        return values if self._plain.issuperset(map(type, values)) else [self.one(each, run) for each in values]


class IntLeaf(Leaf):
    """Stays as it is in its range."""

    def __init__(self, type: Any, largest: int, smallest: int, *, is_nullable: bool) -> None:
        super().__init__(type, frozenset({int}), is_nullable=is_nullable)
        self._smallest = smallest
        self._largest = largest

    def one(self, value: Any, run: Run) -> Any:
        if value.__class__ is int:
            return value if self._smallest <= value <= self._largest else self._coerce(value)
        return super().one(value, run)

    def many(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        if set(map(type, values)) == {int} and self._smallest <= min(values) and max(values) <= self._largest:
            return values
        return [self.one(each, run) for each in values]


class EnumLeaf(Leaf):
    """By member, or by the value of a member."""

    def __init__(self, type: Any, names: Mapping[Any, str], *, is_nullable: bool) -> None:
        super().__init__(type, frozenset(), is_nullable=is_nullable)
        self._names = names

    def one(self, value: Any, run: Run) -> Any:
        return self._names.get(value) or super().one(value, run)

    def many(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        found = list(map(self._names.get, values))
        return [self.one(each, run) for each in values] if None in found else found


class ListOf(Shape):
    def __init__(self, item: Shape, *, is_nullable: bool) -> None:
        self._item = item
        self._is_nullable = is_nullable

    def one(self, value: Any, run: Run) -> Any:
        if value.__class__ in LISTS:
            return list(self._item.many(value, run))
        if value is None and self._is_nullable:
            return None
        raise Unexpected

    def many(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        if not LISTS.issuperset(map(type, values)):
            return [self.one(each, run) for each in values]
        flat: list[Any] = list(chain.from_iterable(values))
        items = iter(self._item.many(flat, run))
        return [list(islice(items, len(each))) for each in values]


class Rows:
    """The rows of many objects, and their columns by name."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._rows = [each.row for each in sources]
        self._columns: dict[str, Sequence[Any]] = {}
        kinds = set(map(type, self._rows))
        if len(kinds) == 1:
            names = getattr(kinds.pop(), "_fields", ())  # of a named tuple
            self._columns = dict(zip(names, zip(*self._rows, strict=True), strict=True)) if names else {}

    def column(self, name: str) -> Sequence[Any]:
        found = self._columns.get(name)
        return list(map(attrgetter(name), self._rows)) if found is None else found


@dataclass(frozen=True, slots=True)
class Getter:
    """How a field is read from one object, and from many objects and their rows."""

    one: Callable[[Any], Any]
    many: Callable[[Sequence[Any], Rows], Sequence[Any]]


def of_source(read: Callable[[Any], Any]) -> Getter:
    return Getter(read, lambda sources, _: list(map(read, sources)))


def of_row(name: str) -> Getter:
    return Getter(attrgetter(f"row.{name}"), lambda _, rows: rows.column(name))


def made(make: Callable[[Any, Any, Any], Any]) -> Getter:
    return Getter(
        lambda source: make(source.row, source.seen_at, source.at),
        lambda sources, _: [make(each.row, each.seen_at, each.at) for each in sources],
    )


class ObjectOf(Shape):
    """`template` has the names of the response in order, with the values of fields that are the same for all objects;
    `getters` how the other fields are read from each class of objects."""

    def __init__(
        self,
        template: dict[str, Any],
        shapes: dict[str, Shape],
        getters: Mapping[type[Any], dict[str, Getter]],
        loads: Sequence[LoadedField],
        *,
        is_nullable: bool,
    ) -> None:
        self._template = template
        self._loads = loads
        self._is_nullable = is_nullable
        self._has_rows = frozenset(kind for kind in getters if getattr(kind, "row_fields", None))
        self._one = {
            kind: [(name, each.one, shapes[name].one) for name, each in of.items()] for kind, of in getters.items()
        }
        self._many = {
            kind: [(name, each.many, shapes[name].many) for name, each in of.items()] for kind, of in getters.items()
        }

    @property
    def kinds(self) -> list[type[Any]]:
        return list(self._one)

    def one(self, value: Any, run: Run) -> Any:
        if value is None and self._is_nullable:
            return None
        result = self._template.copy()
        for name, get, convert in self._one[value.__class__]:
            result[name] = convert(get(value), run)
        for field in self._loads:
            run[field].append((field.loaded.key(value), result))
        return result

    def many(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        kinds = set(map(type, values))
        if len(kinds) != 1:
            return self._several(values, run) if kinds else []
        (kind,) = kinds
        if kind not in self._many:
            return [self.one(each, run) for each in values]
        rows = Rows(values if kind in self._has_rows else ())
        columns: dict[str, Any] = {name: [value] * len(values) for name, value in self._template.items()}
        for name, get, convert in self._many[kind]:
            columns[name] = convert(get(values, rows), run)
        results = list(map(dict_of(tuple(columns)), *columns.values()))
        for field in self._loads:
            run[field].extend(zip(map(field.loaded.key, values), results, strict=True))
        return results

    def _several(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        """Of several classes; most often nulls beside one class."""
        present = [each for each in values if each is not None]
        if not self._is_nullable or len(present) == len(values):
            return [self.one(each, run) for each in values]
        found = iter(self.many(present, run))
        return [None if each is None else next(found) for each in values]


@lru_cache(maxsize=1000)
def dict_of(names: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """Makes a dictionary with these names of as many values; `dict(zip(names, values))` takes four times as long."""
    values = [f"v{number}" for number in range(len(names))]
    items = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    return eval(f"lambda {', '.join(values)}: {{{items}}}")


class OneOf(Shape):
    """A value of an interface or union: by its class. A class that is not compiled has no shape."""

    def __init__(self, shapes: Sequence[ObjectOf], *, is_nullable: bool) -> None:
        self._shapes = {kind: shape for shape in shapes for kind in shape.kinds}
        self._is_nullable = is_nullable

    def one(self, value: Any, run: Run) -> Any:
        if value is None and self._is_nullable:
            return None
        return self._shapes[value.__class__].one(value, run)

    def many(self, values: Sequence[Any], run: Run) -> Sequence[Any]:
        kinds = set(map(type, values))
        if len(kinds) == 1 and not kinds.isdisjoint(self._shapes):
            return self._shapes[kinds.pop()].many(values, run)
        return [self.one(each, run) for each in values]


@lru_cache(maxsize=500)
def leaf_of(type: Any, *, is_nullable: bool) -> Shape:
    if isinstance(type, GraphQLEnumType):
        members = getattr(type, "wrapped_cls", ())
        names = {each: type.coerce_output_value(each) for each in members}
        return EnumLeaf(type, names, is_nullable=is_nullable)
    match type.name:
        case "String" | "ID":
            return Leaf(type, frozenset({str}), is_nullable=is_nullable)
        case "Boolean":
            return Leaf(type, frozenset({bool}), is_nullable=is_nullable)
        case "Int":
            return IntLeaf(type, 2**31 - 1, -(2**31), is_nullable=is_nullable)
        case "BigInt" if is_plain(type, 2**53):
            return Leaf(type, frozenset({int}), is_nullable=is_nullable)
        case "DateTime" if is_iso(type):
            return Leaf(type, frozenset({datetime}), is_nullable=is_nullable)  # orjson writes it as isoformat() does
        case _:
            return Leaf(type, frozenset(), is_nullable=is_nullable)
