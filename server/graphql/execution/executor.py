"""The library's executor, with compiled selections where they are possible."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, cast

from graphql import FieldNode, get_argument_values, get_named_type, is_leaf_type
from graphql.execution.collect_fields import FieldDetails
from graphql.execution.executor import CollectedErrors
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from schema.context import Context
from server.graphql.documents.document import Operation
from server.graphql.execution.compiler import Compiler, PartialShape
from server.graphql.execution.shapes import LoadedField, Run, Shape

MAX_SELECTIONS = 200  # of one operation
LONG = 10  # items of a list that is worth compiling for one execution

Key = tuple[int, ...]


class Plan:
    """The compiled selections of one operation. They are compiled when they are first needed."""

    __slots__ = ("_compiler", "_keyed", "_partial", "_shapes")

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._shapes: dict[Key, Shape | None] = {}
        self._partial: dict[Key, PartialShape | None] = {}
        self._keyed: list[Any] = []  # keys are ids of objects, so these objects must live as long as the keys

    def shape(self, type: Any, nodes: Sequence[Any]) -> Shape | None:
        """What completes a value of this type; None if the library has to do it."""
        key = (id(type), id(nodes[0].node)) if len(nodes) == 1 else (id(type), *[id(each.node) for each in nodes])
        try:
            return self._shapes[key]
        except KeyError:
            shape = None
            if not is_leaf_type(get_named_type(type)) and self._keep(type, nodes):
                shape = self._compiler.shape(type, nodes)
            self._shapes[key] = shape
            return shape

    def plain_fields(self, type: Any, nodes: Sequence[Any]) -> PartialShape | None:
        """What makes the plain fields of an object that also has others."""
        key = (id(type), *[id(each.node) for each in nodes])
        try:
            return self._partial[key]
        except KeyError:
            partial = self._compiler.plain_fields(type, nodes) if self._keep(type, nodes) else None
            self._partial[key] = partial
            return partial

    def _keep(self, type: Any, nodes: Sequence[Any]) -> bool:
        if len(self._keyed) >= MAX_SELECTIONS:
            return False
        self._keyed.append((type, list(nodes)))
        return True


class CompilingExecutor(StrawberryGraphQLCoreExecutionContext):
    """Completes a value with the operation's plan, or with the library if the plan has no function or it raises."""

    plan: Plan | None = None
    compiles_all = False
    _has_failed = False

    def use_plan(self, operation: Operation, *, at_once: bool = False) -> None:
        """Use the operation's plan. At the first execution only long lists are compiled: many documents are executed
        only once."""
        if operation.plan is None:
            operation.plan = Plan(Compiler(self.schema, self.fragments, self.operation))
        self.plan = cast("Plan", operation.plan)
        self.compiles_all = at_once or operation.was_executed
        operation.was_executed = True

    def only_field(self) -> tuple[str, Shape] | None:
        """Name and shape of the operation's root field, if there is only one, and nothing is decided by variables."""
        selections = self.operation.selection_set.selections
        node = selections[0]
        if self.plan is None or len(selections) > 1 or not isinstance(node, FieldNode) or node.directives:
            return None
        root: Any = self.schema.get_root_type(self.operation.operation)
        definition: Any = self.schema.get_field(root, node.name.value)
        shape = self.plan.shape(definition.type, [FieldDetails(node, None)])
        return None if shape is None else ((node.alias or node.name).value, shape)

    def build_per_event_executor(self, payload: Any) -> Any:
        """As the library's, which copies itself by the way of pickling."""
        executor: Any = object.__new__(type(self))
        executor.__dict__.update(self.__dict__, root_value=payload, collected_errors=CollectedErrors())
        return executor

    def complete_value(
        self,
        return_type: Any,
        field_details_list: Any,
        info: Any,
        path: Any,
        result: Any,
        position_context: Any,
    ) -> Any:
        def complete() -> Any:
            library: Any = super(CompilingExecutor, self)
            return library.complete_value(return_type, field_details_list, info, path, result, position_context)

        plan = self.plan
        if plan is None or result is None or not (self.compiles_all or _is_long(result)):
            return complete()
        shape = plan.shape(return_type, field_details_list)
        if shape is None:
            return complete()
        run: Run = defaultdict(list)
        try:
            value = shape.one(result, run)
        except Exception:  # noqa: BLE001 - the library meets the same problem and reports it
            return complete()
        return self._loaded(value, run, path, complete) if run else value

    def collect_and_execute_subfields(
        self, return_type: Any, field_details_list: Any, path: Any, result: Any, position_context: Any
    ) -> Any:
        partial = self.plan.plain_fields(return_type, field_details_list) if self.plan and self.compiles_all else None
        if partial is None:
            return super().collect_and_execute_subfields(
                return_type, field_details_list, path, result, position_context
            )
        grouped: Any = self.collect_subfields(return_type, field_details_list).grouped_field_set

        def execute(names: Iterable[str]) -> Any:
            return self.execute_fields(
                return_type, result, path, {name: grouped[name] for name in names}, position_context
            )

        run: Run = defaultdict(list)
        try:
            values = partial.shape.one(result, run)
        except Exception:  # noqa: BLE001 - as above
            return execute(grouped)
        others = execute(partial.others)
        if run:
            plain = [name for name in grouped if name not in partial.others]
            return _joined(values, self._loaded(values, run, path, lambda: execute(plain)), others)
        if isawaitable(others):
            return _joined(values, None, others)
        values.update(others)
        return values

    async def _loaded(self, value: Any, run: Run, path: Any, complete: Callable[[], Any]) -> Any:
        """The value with everything that it waits for. If that fails, the library completes it from the beginning."""
        is_single = not _is_in_list(path) and not self._has_failed
        try:
            while run:
                later: Run = defaultdict(list)
                fields = list(run.items())
                if len(fields) == 1:
                    loaded = [await self._load(*fields[0], is_single=is_single)]
                else:
                    loaded = await asyncio.gather(
                        *(self._load(field, waiting, is_single=is_single) for field, waiting in fields)
                    )
                for (field, waiting), values in zip(fields, loaded, strict=True):
                    name = field.name
                    for (_, target), each in zip(waiting, field.shape.many(values, later), strict=True):
                        target[name] = each
                run = later
        except Exception:  # noqa: BLE001 - as above
            self._has_failed = True
            value = complete()
            return await value if isawaitable(value) else value
        return value

    async def _load(
        self, field: LoadedField, waiting: list[tuple[Any, dict[str, Any]]], *, is_single: bool
    ) -> list[Any]:
        arguments: dict[str, Any] = {}
        if field.definition.args:
            arguments = get_argument_values(field.definition, field.node, self.variable_values)
        loaders = cast("Context", self.context_value).loaders
        load = field.loaded.load_all if is_single and not field.loaded.is_shared else field.loaded.load_many
        return await load([key for key, _ in waiting], loaders, arguments)


def _is_in_list(path: Any) -> bool:
    """Whether the library completes other values like this one at the same time; their keys are loaded together."""
    while path is not None:
        if path.key.__class__ is int:
            return True
        path = path.prev
    return False


def _is_long(value: Any) -> bool:
    return (value.__class__ is list or value.__class__ is tuple) and len(value) >= LONG


async def _joined(values: dict[str, Any], loaded: Any, others: Any) -> dict[str, Any]:
    """`loaded` may be another object than `values`, if the library had to complete it."""
    try:
        if loaded is not None:
            values.update(await loaded)
    except BaseException:
        if isawaitable(others):
            cast("Any", others).close()
        raise
    values.update(await others if isawaitable(others) else others)
    return values
