"""Compiled selections return what the library returns, errors and nulls included."""

import gc
import json
import random
from inspect import isawaitable
from typing import Any

import pytest
from graphql import GraphQLList, GraphQLNonNull, OperationDefinitionNode, parse
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from server.graphql.documents.document import Operation
from server.graphql.execution import compiler
from server.graphql.execution.encode import encoded
from server.graphql.execution.executor import LONG, CompilingExecutor, Plan
from tests.server.graphql.execution.documents import Maker, holder, selection, types


async def answer(kind: Any, schema: Any, document: Any, operation: Operation | None) -> tuple[Any, Any]:
    executor = kind.build(schema, document, raw_variable_values={"yes": True})
    if operation is not None:
        executor.use_plan(operation)
        executor.use_plan(operation)  # the plan is made at the second execution
        assert isinstance(executor.plan, Plan)
    result = executor.execute_operation()
    if isawaitable(result):
        result = await result
    data = json.loads(encoded(result.data))
    errors = [{**error.formatted, "path": comparable(error.path, data)} for error in result.errors or ()]
    # Fields are resolved at the same time, so the order of their errors has no meaning.
    return data, sorted(errors, key=json.dumps)


def comparable(path: Any, data: Any) -> list[Any]:
    """If several items of a list that is null in the end have errors, it is a matter of time which one is reported."""
    value = data
    for place, key in enumerate(path):
        if value is None:
            return [*path[:place], *("*" if isinstance(each, int) else each for each in path[place:])]
        value = value[key]
    return list(path)


def operation_of(document: Any) -> Operation:
    (node,) = (each for each in document.definitions if isinstance(each, OperationDefinitionNode))
    return Operation(node, cost=None, after=None, is_plain=False)  # type: ignore[arg-type]


def shapes(type: Any) -> list[Any]:
    return [type, GraphQLNonNull(GraphQLList(GraphQLNonNull(type))), GraphQLList(type)]


# Where one of two fields fails at once, the library drops what it has begun for the other, and Python says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("odd", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("seed", range(4))
async def test_every_type_answers_as_with_the_library_alone(seed: int, odd: float):
    maker, choices = Maker(seed, odd=odd), random.Random(seed)
    values: dict[str, tuple[Any, Any]] = {}
    for number, type in enumerate(types()):
        for place, shape in enumerate(shapes(type)):
            values[f"v{number}_{place}"] = (shape, maker.value(shape))
    schema = holder(values)
    for name, (type, _) in values.items():
        text = f"query ($yes: Boolean!) {{ {name} {selection(type, choices)} {name}: {name} {{ __typename }} }}"
        document = parse(text)
        interpreted = await answer(StrawberryGraphQLCoreExecutionContext, schema, document, None)
        compiled = await answer(CompilingExecutor, schema, document, operation_of(document))
        assert compiled == interpreted, text
    gc.collect()


async def test_plain_selections_are_really_compiled(monkeypatch: pytest.MonkeyPatch):
    maker = Maker(1, odd=0.0)
    by_name = {each.name: each for each in types()}
    type = GraphQLNonNull(GraphQLList(GraphQLNonNull(by_name["Instance"])))
    value = [maker._present(by_name["Instance"], 0) for _ in range(3)]
    schema = holder({"instances": (type, value)})
    document = parse("{ instances { id name status createdAt pricePerHour { amountMicros currency } actions } }")

    monkeypatch.setattr(CompilingExecutor, "execute_fields", _only_root(CompilingExecutor.execute_fields))
    data, errors = await answer(CompilingExecutor, schema, document, operation_of(document))
    assert errors == []
    assert [each["name"] for each in data["instances"]] == [str(each.name) for each in value]


def _only_root(execute_fields: Any) -> Any:
    def wrapped(self: Any, parent_type: Any, *rest: Any) -> Any:
        assert parent_type.name == "Query", "an object was left to the library"
        return execute_fields(self, parent_type, *rest)

    return wrapped


async def test_the_plain_fields_of_an_object_with_a_resolver_are_compiled_too():
    by_name = {each.name: each for each in types()}
    instance = by_name["Instance"]
    document = parse("{ it { id name env { value } status } }")
    schema = holder({"it": (instance, None)})
    executor: Any = CompilingExecutor.build(schema, document)
    node = document.definitions[0].selection_set.selections[0]  # type: ignore[attr-defined]
    details = [compiler.FieldDetails(node, None)]
    partial = compiler.Compiler(schema, executor.fragments, executor.operation).plain_fields(instance, details)
    assert partial is not None
    assert partial.others == ("env",)
    value = Maker(3, odd=0.0)._present(instance, 0)
    assert list(partial.shape.one(value, {})) == ["id", "name", "env", "status"]


async def test_an_operation_is_compiled_on_its_second_use_but_long_lists_at_once(monkeypatch: pytest.MonkeyPatch):
    type = next(each for each in types() if each.name == "Money")
    money = [Maker(1, odd=0.0)._present(type, 0) for _ in range(LONG)]
    schema = holder({"few": (GraphQLList(type), money[:-1]), "many": (GraphQLList(type), money)})
    document = parse("{ few { currency } many { currency } }")
    operation = operation_of(document)
    compiled: list[str] = []
    shape = Plan.shape

    def noted(plan: Plan, type: Any, nodes: Any) -> Any:
        compiled.append(nodes[0].node.name.value)
        return shape(plan, type, nodes)

    monkeypatch.setattr(Plan, "shape", noted)
    for expected in (["many"], ["few", "many"]):
        compiled.clear()
        executor: Any = CompilingExecutor.build(schema, document)
        executor.use_plan(operation)
        executor.execute_operation()
        assert compiled == expected
