"""What an operation may cost: how many values its answer holds at most.

Each field counts as one, and what is inside of a list as often as the list is long. How long a list is at most is told
by `first`, or by the list that it was asked with (`ids`); where nothing tells, a few are assumed. What is asked about
the schema itself counts a tenth: it comes from memory. Each fragment is counted once and multiplied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLCompositeType,
    GraphQLField,
    GraphQLNamedType,
    GraphQLSchema,
    InlineFragmentNode,
    IntValueNode,
    ListValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    ValueNode,
    VariableNode,
)

from schema.documents.core import named, type_of

ASSUMED = 10  # members of a list whose length nothing tells
LONGEST = 1_000  # what is asked for beyond is refused by the field itself, with better words
INTROSPECTION = frozenset({"__schema", "__type"})
KEPT = 64  # counts of one operation, by the lengths that its variables ask for

Variables = dict[str, Any]
# How long the pages are that `nodes` and `edges` are of; None outside of a connection.
Page = int | None


@dataclass(frozen=True, slots=True)
class Assumed:
    """How long lists are that have no argument for it; those of introspection are as long as the schema is large."""

    lengths: dict[tuple[str, str], int]

    def of(self, parent: GraphQLNamedType, field: str) -> int:
        return self.lengths.get((parent.name, field), ASSUMED)


def assumed_for(schema: GraphQLSchema) -> Assumed:
    types: Any = list(schema.type_map.values())
    fields = [field for each in types for field in getattr(each, "fields", {}).values()]
    inputs = sum(len(each.fields) for each in types if each.__class__.__name__ == "GraphQLInputObjectType")
    values = sum(len(getattr(each, "values", ())) for each in types)
    arguments = sum(len(getattr(field, "args", ())) for field in fields)

    def on_average(count: int, of: int) -> int:
        return -(-count // max(of, 1))

    lengths = {
        ("__Schema", "types"): len(types),
        ("__Schema", "directives"): len(schema.directives),
        ("__Type", "fields"): on_average(len(fields) - inputs, len(types)),
        ("__Type", "inputFields"): on_average(inputs, len(types)),
        ("__Type", "enumValues"): on_average(values, len(types)),
        ("__Type", "interfaces"): 1,
        ("__Type", "possibleTypes"): 1,
        ("__Field", "args"): on_average(arguments, len(fields)),
        ("__Directive", "args"): 1,
    }
    return Assumed(lengths)


class Cost:
    """Of one operation of a valid document; the variables that tell lengths are looked at each time."""

    def __init__(
        self, schema: GraphQLSchema, assumed: Assumed, document: DocumentNode, operation: OperationDefinitionNode
    ) -> None:
        self._count = _Count(schema, assumed, document)
        self._operation = operation
        self._root = cast("GraphQLNamedType", schema.get_root_type(operation.operation))
        self._known: dict[tuple[object, ...], int] = {}
        self._defaults = {each.variable.name.value: each.default_value for each in operation.variable_definitions or ()}
        self.of({})  # finds out which variables tell anything

    def of(self, variables: Variables) -> int:
        if not self._count.telling and self._known:
            return self._known[()]
        lengths = {name: self._length(name, variables) for name in self._count.telling}
        key = tuple(lengths.values())
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[key] = self._count.of(self._operation.selection_set, self._root, lengths)
        return known

    def _length(self, name: str, variables: Variables) -> int | None:
        if name in variables:
            given = variables[name]
            return _bounded(len(cast("list[Any]", given)) if isinstance(given, list) else given)
        default = self._defaults.get(name)
        return None if default is None else _literal(default, lambda _: None)


class _Count:
    def __init__(self, schema: GraphQLSchema, assumed: Assumed, document: DocumentNode) -> None:
        self._schema = schema
        self._assumed = assumed
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }
        self._known: dict[tuple[str, Page], int] = {}
        self._lengths: dict[str, int | None] = {}
        self.telling: set[str] = set()  # the variables that tell how long a list is

    def of(self, selections: SelectionSetNode, root: GraphQLNamedType, lengths: dict[str, int | None]) -> int:
        self._lengths = lengths
        self._known.clear()
        return self._set(selections, root, None)

    def _set(self, selections: SelectionSetNode, parent: GraphQLNamedType, page: Page) -> int:
        total = 0
        for each in selections.selections:
            if isinstance(each, FieldNode):
                cost = self._field(each, parent, page)
                total += -(-cost // 10) if each.name.value in INTROSPECTION else cost
            elif isinstance(each, FragmentSpreadNode):
                total += self._spread(each.name.value, page)
            elif isinstance(each, InlineFragmentNode):
                condition = each.type_condition
                inner = parent if condition is None else self._schema.type_map[condition.name.value]
                total += self._set(each.selection_set, inner, page)
        return total

    def _spread(self, name: str, page: Page) -> int:
        known = self._known.get((name, page))
        if known is None:
            fragment = self._fragments[name]
            inner = self._schema.type_map[fragment.type_condition.name.value]
            known = self._known[name, page] = self._set(fragment.selection_set, inner, page)
        return known

    def _field(self, node: FieldNode, parent: GraphQLNamedType, page: Page) -> int:
        definition = self._schema.get_field(cast("GraphQLCompositeType", parent), node.name.value)
        if definition is None or node.selection_set is None:
            return 1
        type = type_of(definition)
        told = self._told(node, definition)
        if not _is_list(type):
            return 1 + self._set(node.selection_set, named(type), told)
        if told is None:
            told = page if page is not None else self._assumed.of(parent, node.name.value)
        # Each member is a value of its own: an object, which is made even if nothing is asked of it.
        return 1 + told * (1 + self._set(node.selection_set, named(type), None))

    def _told(self, node: FieldNode, definition: GraphQLField) -> int | None:
        """By `first`, or by how many of something are named."""
        given = {argument.name.value: argument.value for argument in node.arguments or ()}
        for name, argument in definition.args.items():
            if name != "first" and not (name == "ids" and _is_list(type_of(argument))):
                continue
            told = _literal(given[name], self._of_variable) if name in given else None
            return _bounded(argument.default_value) if told is None else told
        return None

    def _of_variable(self, name: str) -> int | None:
        self.telling.add(name)
        return self._lengths.get(name)


def _literal(value: ValueNode, of_variable: Callable[[str], int | None]) -> int | None:
    if isinstance(value, VariableNode):
        return of_variable(value.name.value)
    if isinstance(value, IntValueNode):
        return _bounded(int(value.value[:10]))
    if isinstance(value, ListValueNode):
        return _bounded(len(value.values))
    return None


def _bounded(length: object) -> int | None:
    return min(max(length, 0), LONGEST) if isinstance(length, int) else None


def _is_list(type: Any) -> bool:
    return str(type).startswith("[")
