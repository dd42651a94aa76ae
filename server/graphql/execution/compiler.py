"""Compiles the selection of a type into one shape: functions that make the response out of objects.

Compiled are attributes of the type's class, resolvers that are functions of the object alone, and fields that are
declared as `Lookup`: the shape notes their keys in `run`, and the executor loads all of them at once. Fields with a
directive and other resolvers are left to the library. A shape raises on anything unexpected (another class, a null
that is not allowed, a value that a scalar refuses, an awaitable). The executor then lets the library complete the value
from the beginning, so errors and nulls are the library's own. Reading such a field twice has no effect.

Shapes are closures and not generated code: making that took 0.6 ms of a new document, and reading all values of a field
at once is as fast for a list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

from graphql import (
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    is_abstract_type,
    is_leaf_type,
)
from graphql.execution.collect_fields import FieldDetails, FragmentDetails, collect_subfields
from strawberry.types.field import StrawberryField

from schema.loaded import LOADED
from server.graphql.execution.fields import (
    DEFINITION,
    NotCompilable,
    attribute_of,
    classes_of,
    simple_resolver,
)
from server.graphql.execution.shapes import (
    Getter,
    ListOf,
    LoadedField,
    ObjectOf,
    OneOf,
    Shape,
    leaf_of,
    made,
    of_row,
    of_source,
)

MAX_FIELDS = 500  # of one shape

Nodes = Sequence[FieldDetails]


@dataclass(frozen=True, slots=True)
class PartialShape:
    """`shape` makes the plain fields of an object; the fields named by `others` are None in its result."""

    shape: Shape
    others: tuple[str, ...]


class Compiler:
    """Compiles selections of one operation. Variables are not known here, so directives can't be compiled."""

    def __init__(self, schema: GraphQLSchema, fragments: dict[str, FragmentDetails], operation: Any) -> None:
        self._schema = schema
        self._fragments = fragments
        self._operation = operation

    def shape(self, type: Any, nodes: Nodes) -> Shape | None:
        """How a resolver's result becomes its value in the response; None if the library has to do it."""
        try:
            return _Shapes(self).of(type, nodes)
        except NotCompilable:
            return None

    def plain_fields(self, type: GraphQLObjectType, nodes: Nodes) -> PartialShape | None:
        """The plain fields of an object that also has others; None if it has fewer than two."""
        try:
            grouped = self.fields(type, nodes)
        except NotCompilable:
            return None
        shapes = _Shapes(self)
        others = tuple(name for name, group in grouped.items() if not shapes.is_plain(type, group))
        if len(grouped) - len(others) < 2:
            return None
        return PartialShape(shapes.of_object(type, grouped, without=others), others)

    def fields(self, type: GraphQLObjectType, nodes: Nodes) -> dict[str, list[FieldDetails]]:
        """The selected fields of an object, by their names in the response."""
        if any(each.fragment_variable_values or each.defer_usage for each in nodes):
            raise NotCompilable
        for each in nodes:
            self._refuse_directives(each.node.selection_set, set())
        collected = collect_subfields(
            self._schema, self._fragments, _NO_VARIABLES, self._operation, type, list(nodes), True
        )
        if collected.new_defer_usages:
            raise NotCompilable
        return dict(collected.grouped_field_set)

    def field(self, type: GraphQLObjectType, name: str) -> Any:
        return self._schema.get_field(type, name)

    def possible(self, type: Any) -> Sequence[GraphQLObjectType]:
        return self._schema.get_possible_types(type)

    def _refuse_directives(self, selections: Any, seen: set[str]) -> None:
        """On this level; nested selections are checked when they are compiled."""
        for each in () if selections is None else selections.selections:
            if each.directives:
                raise NotCompilable
            if each.kind == "inline_fragment":
                self._refuse_directives(each.selection_set, seen)
            elif each.kind == "fragment_spread" and each.name.value not in seen:
                seen.add(each.name.value)
                fragment = self._fragments[each.name.value]
                if fragment.variable_signatures or fragment.definition.directives:
                    raise NotCompilable
                self._refuse_directives(fragment.definition.selection_set, seen)


class _Shapes:
    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._fields = 0

    def of(self, type: Any, nodes: Nodes) -> Shape:
        is_nullable = not isinstance(type, GraphQLNonNull)
        inner: Any = type if is_nullable else cast("Any", type).of_type
        if isinstance(inner, GraphQLList):
            return ListOf(self.of(cast("Any", inner).of_type, nodes), is_nullable=is_nullable)
        if is_leaf_type(inner):
            return leaf_of(inner, is_nullable=is_nullable)
        if is_abstract_type(inner):
            return OneOf(self._possible(inner, nodes), is_nullable=is_nullable)
        if isinstance(inner, GraphQLObjectType):
            return self.of_object(inner, self._compiler.fields(inner, nodes), is_nullable=is_nullable)
        raise NotCompilable

    def is_plain(self, type: GraphQLObjectType, group: Nodes) -> bool:
        if group[0].node.name.value == "__typename":
            return True
        try:
            _Shapes(self._compiler)._field(type, "", group)
        except NotCompilable:
            return False
        return True

    def of_object(
        self,
        type: GraphQLObjectType,
        grouped: dict[str, list[FieldDetails]],
        *,
        without: Sequence[str] = (),
        is_nullable: bool = False,
    ) -> ObjectOf:
        self._fields += len(grouped)
        if self._fields > MAX_FIELDS:
            raise NotCompilable
        template: dict[str, Any] = dict.fromkeys(grouped)
        shapes: dict[str, Shape] = {}
        read: dict[str, Any] = {}
        loads: list[LoadedField] = []
        for name, group in grouped.items():
            if name in without:
                continue
            if group[0].node.name.value == "__typename":
                template[name] = type.name
                continue
            field = self._field(type, name, group)
            if isinstance(field, LoadedField):
                loads.append(field)
            else:
                read[name], shapes[name] = field
        getters = {
            kind: {name: _getter(kind, attribute) for name, attribute in read.items()} for kind in classes_of(type)
        }
        return ObjectOf(template, shapes, getters, loads, is_nullable=is_nullable)

    def _possible(self, type: Any, nodes: Nodes) -> list[ObjectOf]:
        """Of the types that can be compiled."""
        found: list[ObjectOf] = []
        for each in self._compiler.possible(type):
            try:
                found.append(self.of_object(each, self._compiler.fields(each, nodes)))
            except NotCompilable:
                continue
        return found

    def _field(self, type: GraphQLObjectType, name: str, group: Nodes) -> LoadedField | tuple[Any, Shape]:
        """How a field is read: by a loader, from the attribute of that name, or by a resolver."""
        definition: Any = self._compiler.field(type, group[0].node.name.value)
        field = None if definition is None else definition.extensions.get(DEFINITION)
        if definition is None or not isinstance(field, StrawberryField):
            raise NotCompilable
        loaded = field.metadata.get(LOADED)
        if loaded is not None:
            shape = _Shapes(self._compiler).of(definition.type, group)
            return LoadedField(name, loaded, shape, definition, group[0].node)
        if definition.args:
            raise NotCompilable
        return simple_resolver(field) or attribute_of(field), self.of(definition.type, group)


def _getter(kind: Any, attribute: Any) -> Getter:
    """`attribute` is its name or a resolver."""
    if not isinstance(attribute, str):
        return of_source(attribute)
    make = getattr(kind, "made_fields", {}).get(attribute)
    if make is not None:
        return made(make)
    return of_row(attribute) if attribute in getattr(kind, "row_fields", ()) else of_source(attrgetter(attribute))


class _NoVariables:
    """Stands for the operation's variables: a selection that needs one can't be compiled."""

    def __getattr__(self, name: str) -> Any:
        raise NotCompilable


_NO_VARIABLES: Any = _NoVariables()
