"""Checks in linear time whether fields with the same name in the response can be merged.

The library compares each pair: `id` a thousand times takes a second. Here fields are grouped by name, each is compared
with the first of its group only, and the selections inside a group are grouped again. See "FieldsInSetCanMerge" in the
specification; the algorithm is Simon Adameit's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLCompositeType,
    GraphQLError,
    GraphQLField,
    GraphQLNamedType,
    GraphQLSchema,
    InlineFragmentNode,
    ListValueNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    ValueNode,
    VariableNode,
    is_leaf_type,
    is_object_type,
)

from server.graphql.documents.core_types import named, type_of

MAX_VISITS = 10  # of one field; only interfaces nested on purpose need more


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    node: FieldNode
    parent: GraphQLNamedType
    definition: GraphQLField

    @property
    def key(self) -> str:
        return (self.node.alias or self.node.name).value


class TooComplex(Exception):
    """The check would take too long."""


class _Conflict(Exception):
    def __init__(self, first: _Field, other: _Field, reason: str) -> None:
        super().__init__(reason)
        self.error = GraphQLError(
            f"Fields '{first.key}' conflict because {reason}. "
            "Use different aliases on the fields to fetch both if this was intentional.",
            [first.node, other.node],
        )


def check_overlap(schema: GraphQLSchema, document: DocumentNode, most_fields: int) -> GraphQLError | None:
    """The first conflict in a document that passed every other rule; raises TooComplex."""
    check = _Check(schema, document, budget=MAX_VISITS * most_fields)
    try:
        for definition in document.definitions:
            if isinstance(definition, OperationDefinitionNode):
                root = schema.get_root_type(definition.operation)
                if root is not None:
                    check.all_of(check.fields_of([(definition.selection_set, root)]))
    except _Conflict as conflict:
        return conflict.error
    return None


class _Check:
    def __init__(self, schema: GraphQLSchema, document: DocumentNode, budget: int) -> None:
        self._schema = schema
        self._budget = budget
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }

    def all_of(self, fields: list[_Field]) -> None:
        self._same_shapes(fields)
        self._same_fields(fields)

    def _same_shapes(self, fields: list[_Field]) -> None:
        """For every possible object, one name has one shape."""
        for group in _by_key(fields):
            first = group[0]
            for other in group[1:]:
                types = type_of(first.definition), type_of(other.definition)
                if types[0] is not types[1] and _differ(*types):
                    types = f"'{types[0]}' and '{types[1]}'"
                    raise _Conflict(first, other, f"they return conflicting types {types}")
            self._same_shapes(self._inside(group))

    def _same_fields(self, fields: list[_Field]) -> None:
        """For one object, one name is one field with one set of arguments."""
        for group in _by_key(fields):
            for alike in _by_parent(group):
                first = alike[0]
                arguments = _arguments(first.node) if len(alike) > 1 else None
                for other in alike[1:]:
                    names = first.node.name.value, other.node.name.value
                    if names[0] != names[1]:
                        raise _Conflict(first, other, f"'{names[0]}' and '{names[1]}' are different fields")
                    if _arguments(other.node) != arguments:
                        raise _Conflict(first, other, "they have differing arguments")
                self._same_fields(self._inside(alike))

    def _inside(self, group: Iterable[_Field]) -> list[_Field]:
        return self.fields_of(
            (field.node.selection_set, named(type_of(field.definition)))
            for field in group
            if field.node.selection_set is not None
        )

    def fields_of(self, sets: Iterable[tuple[SelectionSetNode, GraphQLNamedType]]) -> list[_Field]:
        found: list[_Field] = []
        spread: set[str] = set()
        for selections, parent in sets:
            self._collect(selections, parent, found, spread)
        self._budget -= len(found)
        if self._budget < 0:
            raise TooComplex
        return found

    def _collect(
        self, selections: SelectionSetNode, parent: GraphQLNamedType, found: list[_Field], spread: set[str]
    ) -> None:
        for each in selections.selections:
            if isinstance(each, FieldNode):
                definition = self._schema.get_field(cast("GraphQLCompositeType", parent), each.name.value)
                if definition is not None:
                    found.append(_Field(each, parent, definition))
            elif isinstance(each, FragmentSpreadNode):
                fragment = self._fragments.get(each.name.value)
                if fragment is not None and each.name.value not in spread:
                    spread.add(each.name.value)
                    self._collect(fragment.selection_set, self._named(fragment, parent), found, spread)
            elif isinstance(each, InlineFragmentNode):
                self._collect(each.selection_set, self._named(each, parent), found, spread)

    def _named(self, node: FragmentDefinitionNode | InlineFragmentNode, parent: GraphQLNamedType) -> GraphQLNamedType:
        condition = node.type_condition
        return parent if condition is None else self._schema.type_map.get(condition.name.value, parent)


def _by_key(fields: list[_Field]) -> Iterable[list[_Field]]:
    groups: dict[str, list[_Field]] = {}
    for field in fields:
        groups.setdefault(field.key, []).append(field)
    return groups.values()


def _by_parent(group: list[_Field]) -> Iterable[list[_Field]]:
    """Fields that one object can have: those of one object type, with those of interfaces and unions."""
    if len(group) == 1:
        return [group]
    objects: dict[GraphQLNamedType, list[_Field]] = {}
    others: list[_Field] = []
    for field in group:
        if is_object_type(field.parent):
            objects.setdefault(field.parent, []).append(field)
        else:
            others.append(field)
    return [[*alike, *others] for alike in objects.values()] or [others]


def _differ(one: Any, other: Any) -> bool:
    """Whether list or non-null wrappers differ, or the scalars or enums inside them."""
    names = named(one), named(other)
    wraps = str(one).replace(names[0].name, ""), str(other).replace(names[1].name, "")
    return wraps[0] != wraps[1] or ((is_leaf_type(names[0]) or is_leaf_type(names[1])) and names[0] is not names[1])


def _arguments(node: FieldNode) -> dict[str, object]:
    return {argument.name.value: _value(argument.value) for argument in node.arguments or ()}


def _value(node: ValueNode) -> object:
    """Equal for equal values; the order of an object's fields does not matter."""
    if isinstance(node, VariableNode):
        return "$", node.name.value
    if isinstance(node, ListValueNode):
        return [_value(each) for each in node.values]
    if isinstance(node, ObjectValueNode):
        return {field.name.value: _value(field.value) for field in node.fields}
    return node.kind, getattr(node, "value", None)
