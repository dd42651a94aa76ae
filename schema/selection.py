"""What a document selects below a field, so that a resolver reads no more than that."""

from typing import Any, cast

from graphql import FieldNode, FragmentSpreadNode, SelectionSetNode

from schema.context import Info


def selected_names(info: Info) -> frozenset[str]:
    """The names of all fields that are selected anywhere below this one, whatever their types and directives are."""
    raw = cast("Any", info)._raw_info  # Strawberry's own view of it is much slower
    known = info.context.selections
    key = id(raw.field_nodes[0])
    names = known.get(key)
    if names is None or len(raw.field_nodes) > 1:
        found: set[str] = set()
        for node in raw.field_nodes:
            _collect(node.selection_set, raw.fragments, found, set())
        names = known[key] = frozenset(found)
    return names


def _collect(selections: SelectionSetNode | None, fragments: Any, found: set[str], seen: set[str]) -> None:
    for each in () if selections is None else selections.selections:
        if isinstance(each, FieldNode):
            found.add(each.name.value)
            _collect(each.selection_set, fragments, found, seen)
        elif isinstance(each, FragmentSpreadNode):
            if each.name.value not in seen:
                seen.add(each.name.value)
                _collect(fragments[each.name.value].selection_set, fragments, found, seen)
        else:
            _collect(getattr(each, "selection_set", None), fragments, found, seen)
