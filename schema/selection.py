"""What a document selects below a field, so that a resolver reads no more than that."""

from typing import Any, TypeVar, cast

from graphql import FieldNode, FragmentSpreadNode, SelectionSetNode
from strawberry.dataloader import DataLoader

from schema.context import Info

K = TypeVar("K")
V = TypeVar("V")


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


def is_alone(info: Info) -> bool:
    """Whether the operation selects this root field and no other."""
    selections = cast("Any", info)._raw_info.operation.selection_set.selections
    return len(selections) == 1 and selections[0].__class__ is FieldNode


async def load_root(info: Info, loader: DataLoader[K, V], key: K) -> V:
    """What a root field shows: of several in one document at once, of one without the loader's task and futures."""
    if is_alone(info):
        (found,) = await loader.load_fn([key])
        if isinstance(found, BaseException):
            raise found
        return found
    return await loader.load(key)


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
