"""A message is what the library makes of its event, errors and nulls included, also where it is made without it."""

import json
import random
from inspect import isawaitable
from typing import Any

import pytest
from graphql import GraphQLError, parse
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from server.graphql.execution.encode import encoded
from server.graphql.execution.executor import CompilingExecutor
from server.graphql.live.source import SubscriptionExecution
from tests.server.graphql.execution.documents import CORE, Maker, selection
from tests.server.graphql.execution.test_compiler import comparable, operation_of

FIELDS = ("instanceEvents", "projectEvents", "fleetStats", "jobStats", "spend", "operationUpdated(id: 1)")
ROOT: Any = CORE.type_map["Subscription"]


def shown(result: Any) -> tuple[Any, Any]:
    data = json.loads(encoded(result.data))
    errors = [{**error.formatted, "path": comparable(error.path, data)} for error in result.errors or ()]
    return data, sorted(errors, key=json.dumps)


async def by_the_library(document: Any, item: object) -> tuple[Any, Any]:
    executor: Any = StrawberryGraphQLCoreExecutionContext.build(CORE, document, raw_variable_values={"yes": True})
    result = executor.build_per_event_executor(item).execute_operation(False)
    return shown(await result if isawaitable(result) else result)


def prepared(document: Any) -> SubscriptionExecution:
    executor: Any = CompilingExecutor.build(CORE, document, raw_variable_values={"yes": True})
    executor.use_plan(operation_of(document), at_once=True)
    return SubscriptionExecution(executor, None)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("odd", [0.0, 0.1])
@pytest.mark.parametrize("field", FIELDS)
async def test_messages_are_those_of_the_library(field: str, odd: float):
    type = ROOT.fields[field.partition("(")[0]].type.of_type
    for seed in range(12):
        maker, choices = Maker(seed, odd=odd), random.Random(seed)
        inside = selection(type, choices)
        start = choices.choice([field, f"other: {field}", f"other: {field} @include(if: $yes)"])
        document = parse(f"subscription ($yes: Boolean!) {{ {start} {inside} }}")
        execution = prepared(document)
        for item in (maker._present(type, 0), None, GraphQLError("the event can't be shown"), maker._present(type, 0)):
            assert shown(await execution.result_of(item)) == await by_the_library(document, item), inside


async def test_a_fragment_is_left_to_the_library():
    document = parse("subscription { ...F } fragment F on Subscription { fleetStats { total } }")
    execution = prepared(document)
    item = Maker(1, odd=0.0)._present(CORE.type_map["FleetStats"], 0)
    assert shown(await execution.result_of(item)) == await by_the_library(document, item)
    assert execution._only_field is None


async def test_events_without_loaded_fields_are_made_without_the_library():
    text = "subscription { it: instanceEvents { id type occurredAt status instanceSnapshot { name status image } } }"
    execution = prepared(parse(text))
    event = Maker(4, odd=0.0)._present(CORE.type_map["InstanceEvent"], 0)
    expected = await by_the_library(parse(text), event)
    execution._execute = None  # type: ignore[assignment]
    assert shown(await execution.result_of(event)) == expected
