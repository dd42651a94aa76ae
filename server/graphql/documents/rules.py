"""Runs many validation rules as one: which of them look at a kind of node is found out once, not for each document."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from graphql import (
    BREAK,
    SKIP,
    ASTValidationRule,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    ListValueNode,
    Node,
    ObjectValueNode,
    ParallelVisitor,
    TypeInfoVisitor,
    ValidationContext,
    VariableNode,
    Visitor,
    visit,
)
from graphql.language.visitor import EnterLeaveVisitor
from graphql.pyutils import RefMap
from graphql.validation.validation_context import NodeWithSelectionSet, VariableUsage, VariableUsageVisitor

Method = Callable[..., Any]
NOTHING = EnterLeaveVisitor(None, None)


def combined(rules: Sequence[type[ASTValidationRule]]) -> type[ASTValidationRule]:
    """A rule that finds what these find."""

    class Combined(ASTValidationRule):
        def __init__(self, context: ValidationContext) -> None:
            super().__init__(context)
            own = _Context(context)
            self._rules = _Rules([rule(own) for rule in rules])

        def get_enter_leave_for_kind(self, kind: str) -> EnterLeaveVisitor:
            return self._rules.get_enter_leave_for_kind(kind)

    return Combined


class _Context(ValidationContext):
    """As its base, which hashes whole definitions to find what it knows of them, and visits all of a definition to find
    its variables."""

    def __init__(self, given: ValidationContext) -> None:
        type_info: Any = given._type_info  # pyright: ignore[reportPrivateUsage]
        super().__init__(given.schema, given.document, type_info, given.on_error, given.hide_suggestions)
        by_identity: Any = (RefMap[Any, Any](), RefMap[Any, Any](), RefMap[Any, Any]())
        self._fragment_spreads, self._variable_usages, self._recursive_variable_usages = by_identity

    def get_variable_usages(self, node: NodeWithSelectionSet) -> list[VariableUsage]:
        usages = self._variable_usages.get(node)
        if usages is None:
            using = set[int]()
            if not _mark_variables(node, using):
                return []
            fragment = node if isinstance(node, FragmentDefinitionNode) else None
            visitor = _Usages(self._type_info, fragment, using)
            visit(node, TypeInfoVisitor(self._type_info, visitor))
            usages = self._variable_usages[node] = visitor.usages
        return usages


class _Usages(VariableUsageVisitor):
    """Visits only fields that use a variable, or have such a field inside."""

    def __init__(self, type_info: Any, fragment: FragmentDefinitionNode | None, using: set[int]) -> None:
        super().__init__(type_info, fragment)
        self._using = using

    def enter_field(self, node: FieldNode, *_: Any) -> Any:
        return None if id(node) in self._using else SKIP


def _mark_variables(node: Any, using: set[int]) -> bool:
    """Whether there is a variable at or below this node, but in definitions of variables; `using` gets such fields."""
    found = False
    for each in node.selection_set.selections if node.selection_set is not None else ():
        if each.__class__ is FragmentSpreadNode:
            found = found or _are_used(each.arguments) or _are_used(each.directives)
        elif _mark_variables(each, using):
            found = True
    if not found:
        found = _are_used(getattr(node, "arguments", None)) or _are_used(node.directives)
    if found:
        using.add(id(node))
    return found


def _are_used(nodes: Any) -> bool:
    """Whether one of these arguments or directives has a variable."""
    for each in nodes or ():
        value = getattr(each, "value", None)
        if _are_used(each.arguments) if value is None else _is_used(value):
            return True
    return False


def _is_used(value: Any) -> bool:
    if value.__class__ is VariableNode:
        return True
    if value.__class__ is ListValueNode:
        return any(map(_is_used, value.values))
    return value.__class__ is ObjectValueNode and any(_is_used(each.value) for each in value.fields)


class _Rules(ParallelVisitor):
    """As its base, which asks every rule for its methods in each document, and again at each node whether it has one.

    Both together are more than half of the time that validation takes. A rule that skips a node has a method for it, so
    only rules with a method need to be looked at when the node is left.
    """

    visitors: Sequence[Visitor]

    def get_enter_leave_for_kind(self, kind: str) -> EnterLeaveVisitor:
        known = self.enter_leave_map.get(kind)
        if known is None:
            known = self.enter_leave_map[kind] = self._methods(kind)
        return known

    def _methods(self, kind: str) -> EnterLeaveVisitor:
        enters: list[tuple[int, Method]] = []
        leaves: list[tuple[int, Method | None]] = []
        for place, visitor in enumerate(self.visitors):
            enter, leave = _names(type(visitor), kind)
            if enter is not None:
                enters.append((place, getattr(visitor, enter)))
            if enter is not None or leave is not None:
                leaves.append((place, None if leave is None else getattr(visitor, leave)))
        if not leaves:
            return NOTHING
        return EnterLeaveVisitor(self._entering(enters), self._leaving(leaves))

    def _entering(self, methods: list[tuple[int, Method]]) -> Method:
        skipping = self.skipping

        def enter(node: Node, *rest: Any) -> Any:
            for place, method in methods:
                if skipping[place] is None:
                    result = method(node, *rest)
                    if result is SKIP or result is False:
                        skipping[place] = node
                    elif result is BREAK or result is True:
                        skipping[place] = BREAK

        return enter

    def _leaving(self, methods: list[tuple[int, Method | None]]) -> Method:
        skipping = self.skipping

        def leave(node: Node, *rest: Any) -> Any:
            for place, method in methods:
                if skipping[place] is node:
                    skipping[place] = None
                elif skipping[place] is None and method is not None:
                    result = method(node, *rest)
                    if result is BREAK or result is True:
                        skipping[place] = BREAK

        return leave


@cache
def _names(rule: type[Visitor], kind: str) -> tuple[str | None, str | None]:
    """The names of its methods for a kind of node."""
    enter = next((name for name in (f"enter_{kind}", "enter") if hasattr(rule, name)), None)
    leave = next((name for name in (f"leave_{kind}", "leave") if hasattr(rule, name)), None)
    return enter, leave
