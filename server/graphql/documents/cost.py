"""The cost of an operation: the largest number of values that its response can have.

Each field counts one, and the fields inside a list count once per item. The length of a list is the argument `first` or
the number of `ids`; without these, a few items are assumed. Introspection counts a tenth, because it is read from
memory. Each fragment is counted once and multiplied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
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

from server.graphql.documents.core_types import named, type_of

ASSUMED = 10  # items of a list that has no argument for its length
MAX_LENGTH = 1_000  # the field itself refuses longer lists, with a better message
INTROSPECTION = frozenset({"__schema", "__type"})
MAX_KEPT = 64  # counts of one operation, by the lengths in its variables

Variables = dict[str, Any]
# The length of the page that `nodes` and `edges` belong to; None outside a connection.
Page = int | None


@dataclass(frozen=True, slots=True)
class Assumed:
    """The lengths of lists without an argument for it; introspection lists are as long as the schema has types."""

    lengths: dict[tuple[str, str], float]  # averages

    def of(self, parent: GraphQLNamedType, field: str) -> float:
        return self.lengths.get((parent.name, field), ASSUMED)


def assumed_for(schema: GraphQLSchema) -> Assumed:
    types: Any = list(schema.type_map.values())
    fields = [field for each in types for field in getattr(each, "fields", {}).values()]
    inputs = sum(len(each.fields) for each in types if each.__class__.__name__ == "GraphQLInputObjectType")
    values = sum(len(getattr(each, "values", ())) for each in types)
    arguments = sum(len(getattr(field, "args", ())) for field in fields)

    def on_average(count: int, of: int) -> float:
        return count / max(of, 1)

    lengths: dict[tuple[str, str], float] = {
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
    """The cost of one operation of a valid document. It depends on the variables that are lengths."""

    def __init__(
        self, schema: GraphQLSchema, assumed: Assumed, document: DocumentNode, operation: OperationDefinitionNode
    ) -> None:
        self._count = _Count(schema, assumed, document)
        self._operation = operation
        self._root = cast("GraphQLNamedType", schema.get_root_type(operation.operation))
        self._known: dict[tuple[object, ...], int] = {}
        self._defaults = {each.variable.name.value: each.default_value for each in operation.variable_definitions or ()}
        self.of({})  # finds the variables that are lengths

    def of(self, variables: Variables) -> int:
        if not self._count.length_variables and self._known:
            return self._known[()]
        lengths = {name: self._length(name, variables) for name in self._count.length_variables}
        key = tuple(lengths.values())
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KEPT:
                self._known.clear()
            known = self._known[key] = self._count.of(self._operation.selection_set, self._root, lengths)
        return known

    def _length(self, name: str, variables: Variables) -> int | None:
        if name in variables:
            value = variables[name]
            return _bounded(len(cast("list[Any]", value)) if isinstance(value, list) else value)
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
        self.length_variables: set[str] = set()

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
        given = self._length(node, definition)
        if not _is_list(type):
            return 1 + self._set(node.selection_set, named(type), given)
        length = given if given is not None else page
        if length is None:
            length = self._assumed.of(parent, node.name.value)
        # Each item is a value as well: an object, which is made even if no field of it is selected.
        return 1 + ceil(length * (1 + self._set(node.selection_set, named(type), None)))

    def _length(self, node: FieldNode, definition: GraphQLField) -> int | None:
        """The length by the argument `first` or `ids`."""
        arguments = {argument.name.value: argument.value for argument in node.arguments or ()}
        for name, argument in definition.args.items():
            if name != "first" and not (name == "ids" and _is_list(type_of(argument))):
                continue
            length = _literal(arguments[name], self._of_variable) if name in arguments else None
            return _bounded(argument.default_value) if length is None else length
        return None

    def _of_variable(self, name: str) -> int | None:
        self.length_variables.add(name)
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
    return min(max(length, 0), MAX_LENGTH) if isinstance(length, int) else None


def _is_list(type: Any) -> bool:
    return str(type).startswith("[")
