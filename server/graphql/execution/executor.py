"""The library's executor, with compiled selections where they are possible."""

from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, cast

from graphql import get_named_type, is_leaf_type
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from server.graphql.documents.document import Operation
from server.graphql.execution.compiler import Compiler, PartialReader, Read

MAX_SELECTIONS = 200  # of one operation

Key = tuple[int, ...]


class Plan:
    """The compiled selections of one operation. They are compiled when they are first needed."""

    __slots__ = ("_compiler", "_keyed", "_partial", "_values")

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._values: dict[Key, Read | None] = {}
        self._partial: dict[Key, PartialReader | None] = {}
        self._keyed: list[Any] = []  # keys are ids of objects, so these objects must live as long as the keys

    def value(self, type: Any, nodes: Sequence[Any]) -> Read | None:
        """The function that completes a value of this type; None if the library has to do it."""
        key = (id(type), id(nodes[0].node)) if len(nodes) == 1 else (id(type), *[id(each.node) for each in nodes])
        try:
            return self._values[key]
        except KeyError:
            read = None
            if not is_leaf_type(get_named_type(type)) and self._keep(type, nodes):
                read = self._compiler.value(type, nodes)
            self._values[key] = read
            return read

    def plain_fields(self, type: Any, nodes: Sequence[Any]) -> PartialReader | None:
        """The function that reads the plain fields of an object that also has others."""
        key = (id(type), *[id(each.node) for each in nodes])
        try:
            return self._partial[key]
        except KeyError:
            reader = self._compiler.plain_fields(type, nodes) if self._keep(type, nodes) else None
            self._partial[key] = reader
            return reader

    def _keep(self, type: Any, nodes: Sequence[Any]) -> bool:
        if len(self._keyed) >= MAX_SELECTIONS:
            return False
        self._keyed.append((type, list(nodes)))
        return True


class CompilingExecutor(StrawberryGraphQLCoreExecutionContext):
    """Completes a value with the operation's plan, or with the library if the plan has no function or it raises."""

    plan: Plan | None = None

    def use_plan(self, operation: Operation, *, at_once: bool = False) -> None:
        """Use the operation's plan. It is made at the second execution: many documents are executed only once."""
        if operation.plan is None and (at_once or operation.was_executed):
            operation.plan = Plan(Compiler(self.schema, self.fragments, self.operation))
        operation.was_executed = True
        self.plan = cast("Plan | None", operation.plan)

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
                except Exception:  # noqa: BLE001 - the library meets the same problem below and reports it
                    pass
        complete = cast("Any", super().complete_value)  # pyright: ignore[reportUnknownMemberType]
        return complete(return_type, field_details_list, info, path, result, position_context)

    def collect_and_execute_subfields(
        self, return_type: Any, field_details_list: Any, path: Any, result: Any, position_context: Any
    ) -> Any:
        reader = None if self.plan is None else self.plan.plain_fields(return_type, field_details_list)
        if reader is None:
            return super().collect_and_execute_subfields(
                return_type, field_details_list, path, result, position_context
            )
        grouped: Any = self.collect_subfields(return_type, field_details_list).grouped_field_set
        try:
            values = reader.read(result)
        except Exception:  # noqa: BLE001 - as above
            return self.execute_fields(return_type, result, path, grouped, None)
        others = self.execute_fields(
            return_type, result, path, {name: grouped[name] for name in reader.others}, position_context
        )
        if isawaitable(others):
            return _joined(values, others)
        values.update(others)
        return values


async def _joined(values: dict[str, Any], others: Any) -> dict[str, Any]:
    values.update(await others)
    return values
