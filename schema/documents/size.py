"""How large a document is once its fragments are spread, without spreading them.

A fragment is measured once, however often it is used: a few hundred bytes of fragments that each use the next one
twice stand for billions of fields.
"""

from dataclasses import dataclass
from typing import cast

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
)

from schema.documents.limits import Limits, too_much


@dataclass(frozen=True, slots=True)
class Size:
    depth: int = 0
    fields: int = 0
    aliases: int = 0
    directives: int = 0
    direct: int = 0  # the fields that are not inside of another one

    def beside(self, other: "Size") -> "Size":
        return Size(
            max(self.depth, other.depth),
            self.fields + other.fields,
            self.aliases + other.aliases,
            self.directives + other.directives,
            self.direct + other.direct,
        )


class Cycle(Exception):
    """A fragment uses itself: such a document has no size, and is not valid."""


def check_size(document: DocumentNode, limits: Limits) -> GraphQLError | None:
    """What is too large about a document that was parsed; raises Cycle."""
    sizes = _Sizes(document)
    for definition in document.definitions:
        if isinstance(definition, FragmentDefinitionNode):
            sizes.of_fragment(definition.name.value)  # also those that nobody uses: they are checked, too
        elif isinstance(definition, OperationDefinitionNode):
            size = sizes.of_set(definition.selection_set)
            size = size.beside(Size(directives=len(definition.directives or ())))
            error = _too_large(size, limits)
            if error is not None:
                return error
    return None


def _too_large(size: Size, limits: Limits) -> GraphQLError | None:
    for what, setting, allowed, found in (
        ("levels of fields", "QUERY_MAX_DEPTH", limits.depth, size.depth),
        ("aliases", "QUERY_MAX_ALIASES", limits.aliases, size.aliases),
        ("directives", "QUERY_MAX_DIRECTIVES", limits.directives, size.directives),
        ("root fields", "QUERY_MAX_ROOT_FIELDS", limits.root_fields, size.direct),
        ("fields with its fragments spread", "QUERY_MAX_FIELDS", limits.fields, size.fields),
    ):
        if found > allowed:
            return too_much(what, setting, allowed, found)
    return None


class _Sizes:
    def __init__(self, document: DocumentNode) -> None:
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }
        self._known: dict[str, Size | None] = {}  # None while it is being measured

    def of_fragment(self, name: str) -> Size:
        if name in self._known:
            known = self._known[name]
            if known is None:
                raise Cycle
            return known
        fragment = self._fragments.get(name)
        if fragment is None:
            return Size()  # the rules have words for that
        self._known[name] = None
        size = self.of_set(fragment.selection_set).beside(Size(directives=len(fragment.directives or ())))
        self._known[name] = size
        return size

    def of_set(self, selections: SelectionSetNode) -> Size:
        depth = fields = aliases = directives = direct = 0
        for each in selections.selections:
            directives += len(each.directives or ())
            if isinstance(each, FieldNode):
                fields += 1
                direct += 1
                aliases += each.alias is not None
                inner = Size() if each.selection_set is None else self.of_set(each.selection_set)
                depth = max(depth, inner.depth + 1)
            else:
                spread = cast("FragmentSpreadNode | InlineFragmentNode", each)
                is_named = isinstance(spread, FragmentSpreadNode)
                inner = self.of_fragment(spread.name.value) if is_named else self.of_set(spread.selection_set)
                direct += inner.direct
                depth = max(depth, inner.depth)
            fields += inner.fields
            aliases += inner.aliases
            directives += inner.directives
        return Size(depth, fields, aliases, directives, direct)
