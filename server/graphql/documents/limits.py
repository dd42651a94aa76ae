"""Limits of one document: size, depth, fields, aliases, directives and cost."""

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

from server.config import Settings


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """From the settings `query_max_*` of the same names; the defaults are for use without settings."""

    characters: int = 50_000
    tokens: int = 1_000
    depth: int = 16
    fields: int = 1_000
    aliases: int = 100
    directives: int = 50
    root_fields: int = 20
    cost: int = 20_000

    @classmethod
    def of(cls, settings: Settings) -> "DocumentLimits":
        return cls(
            characters=settings.query_max_characters,
            tokens=settings.query_max_tokens,
            depth=settings.query_max_depth,
            fields=settings.query_max_fields,
            aliases=settings.query_max_aliases,
            directives=settings.query_max_directives,
            root_fields=settings.query_max_root_fields,
            cost=settings.query_max_cost,
        )


def too_much(what: str, limit: str, allowed: int, found: int | None = None) -> GraphQLError:
    """`limit` is the name of the setting that an operator can change."""
    count = "" if found is None else f" It has {found}."
    extensions: dict[str, object] = {"code": "LIMIT_EXCEEDED", "retryable": False, "limit": limit, "allowed": allowed}
    if found is not None:
        extensions["found"] = found
    return GraphQLError(f"The document may have at most {allowed} {what}.{count}", extensions=extensions)


@dataclass(frozen=True, slots=True)
class Size:
    depth: int = 0
    fields: int = 0
    aliases: int = 0
    directives: int = 0
    direct: int = 0  # fields that are not inside another field

    def beside(self, other: "Size") -> "Size":
        return Size(
            max(self.depth, other.depth),
            self.fields + other.fields,
            self.aliases + other.aliases,
            self.directives + other.directives,
            self.direct + other.direct,
        )


class Cycle(Exception):
    """A fragment uses itself: such a document is not valid."""


def check_size(document: DocumentNode, limits: DocumentLimits) -> GraphQLError | None:
    """The first limit that a parsed document exceeds; raises Cycle."""
    sizes = _Sizes(document)
    for definition in document.definitions:
        if isinstance(definition, FragmentDefinitionNode):
            sizes.of_fragment(definition.name.value)  # unused fragments are validated as well
        elif isinstance(definition, OperationDefinitionNode):
            size = sizes.of_set(definition.selection_set)
            size = size.beside(Size(directives=len(definition.directives or ())))
            error = _too_large(size, limits)
            if error is not None:
                return error
    return None


def _too_large(size: Size, limits: DocumentLimits) -> GraphQLError | None:
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
            return Size()  # validation reports it
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
