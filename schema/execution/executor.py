"""The GraphQL library's executor, with compiled selections where they fit."""

from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, cast
from weakref import WeakKeyDictionary

from graphql import get_named_type, is_leaf_type
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from schema.documents.document import Operation
from schema.execution.selections import Compiler, Mixed, Read

MOST_SELECTIONS = 200  # of one operation

Key = tuple[int, ...]


class Plan:
    """What was compiled for one operation."""

    __slots__ = ("_compiler", "_held", "_mixed", "_values")

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._values: dict[Key, Read | None] = {}
        self._mixed: dict[Key, Mixed | None] = {}
        self._held: list[Any] = []  # keys are made of ids, so what they name must live as long as they do

    def value(self, type: Any, nodes: Sequence[Any]) -> Read | None:
        """How to complete a value of this type, where that can be done without the library."""
        key = (id(type), id(nodes[0].node)) if len(nodes) == 1 else (id(type), *[id(each.node) for each in nodes])
        try:
            return self._values[key]
        except KeyError:
            read = None
            if not is_leaf_type(get_named_type(type)) and self._hold(type, nodes):
                read = self._compiler.value(type, nodes)
            self._values[key] = read
            return read

    def mixed(self, type: Any, nodes: Sequence[Any]) -> Mixed | None:
        """How to read the plain fields of an object that has others, too."""
        key = (id(type), *[id(each.node) for each in nodes])
        try:
            return self._mixed[key]
        except KeyError:
            read = self._mixed[key] = self._compiler.mixed(type, nodes) if self._hold(type, nodes) else None
            return read

    def _hold(self, type: Any, nodes: Sequence[Any]) -> bool:
        if len(self._held) >= MOST_SELECTIONS:
            return False
        self._held.append((type, list(nodes)))
        return True


# As long as the operation is kept, which is as long as its document is known by its text. None for one that was met
# once: compiling takes longer than it saves, and many a document comes only once.
_plans: WeakKeyDictionary[Operation, Plan | None] = WeakKeyDictionary()


class CompilingExecutor(StrawberryGraphQLCoreExecutionContext):
    """Asks the plan first, and takes the library's way where it has nothing to say or stumbles."""

    plan: Plan | None = None

    def follow(self, operation: Operation, *, is_known: bool = False) -> None:
        """Compile for this operation when it comes again, or use what was compiled for it before."""
        plan = _plans.get(operation)
        if plan is None:
            is_known = is_known or operation in _plans
            plan = Plan(Compiler(self.schema, self.fragments, self.operation)) if is_known else None
            _plans[operation] = plan
        self.plan = plan

    def complete_value(
        self,
        return_type: Any,
        field_details_list: Any,
        info: Any,
        path: Any,
        result: Any,
        position_context: Any,
    ) -> Any:
        plan = self.plan
        if plan is not None and result is not None:
            read = plan.value(return_type, field_details_list)
            if read is not None:
                try:
                    return read(result)
                except Exception:  # noqa: BLE001 - whatever it is, the library meets it again and tells it as it should be told
                    pass
        complete = cast("Any", super().complete_value)  # pyright: ignore[reportUnknownMemberType]
        return complete(return_type, field_details_list, info, path, result, position_context)

    def collect_and_execute_subfields(
        self, return_type: Any, field_details_list: Any, path: Any, result: Any, position_context: Any
    ) -> Any:
        mixed = None if self.plan is None else self.plan.mixed(return_type, field_details_list)
        if mixed is None:
            return super().collect_and_execute_subfields(
                return_type, field_details_list, path, result, position_context
            )
        grouped: Any = self.collect_subfields(return_type, field_details_list).grouped_field_set
        try:
            known = mixed.read(result)
        except Exception:  # noqa: BLE001 - as above
            return self.execute_fields(return_type, result, path, grouped, None)
        rest = self.execute_fields(
            return_type, result, path, {name: grouped[name] for name in mixed.others}, position_context
        )
        if isawaitable(rest):
            return _joined(known, rest)
        known.update(rest)
        return known


async def _joined(known: dict[str, Any], rest: Any) -> dict[str, Any]:
    known.update(await rest)
    return known
