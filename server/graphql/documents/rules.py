"""Runs many validation rules as one: which of them look at a kind of node is found out once, not for each document."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from graphql import BREAK, SKIP, ASTValidationRule, Node, ParallelVisitor, ValidationContext, Visitor
from graphql.language.visitor import EnterLeaveVisitor

Method = Callable[..., Any]
NOTHING = EnterLeaveVisitor(None, None)


def combined(rules: Sequence[type[ASTValidationRule]]) -> type[ASTValidationRule]:
    """A rule that finds what these find."""

    class Combined(ASTValidationRule):
        def __init__(self, context: ValidationContext) -> None:
            super().__init__(context)
            self._rules = _Rules([rule(context) for rule in rules])

        def get_enter_leave_for_kind(self, kind: str) -> EnterLeaveVisitor:
            return self._rules.get_enter_leave_for_kind(kind)

    return Combined


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
