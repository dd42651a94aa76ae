"""Starts a subscription in the GraphQL library: one source, then one execution per event."""

from collections import defaultdict
from inspect import isawaitable
from typing import Any, cast

import graphql
from graphql import ExecutionResult
from strawberry import Schema

from schema.context import Context
from schema.event_sources import EventSource
from server.graphql.documents.document import Document
from server.graphql.execution.execute import InvalidVariables, build_executor
from server.graphql.execution.shapes import Run, Shape
from server.graphql.request import Request


class SubscriptionExecution:
    """Executes the selection for each event; variables are coerced once."""

    def __init__(self, executor: Any, feed: EventSource) -> None:
        self._executor = executor  # untyped in the library; results are checked below
        self._only_field: tuple[str, Shape] | None = executor.only_field()
        self.feed = feed

    async def result_of(self, item: object) -> ExecutionResult:
        """An item is the value of the only field, so most often its shape is the whole execution."""
        if self._only_field is not None:
            name, shape = self._only_field
            run: Run = defaultdict(list)
            try:
                value = shape.one(item, run)
            except Exception:  # noqa: BLE001 - the library meets the same problem and reports it
                return await self._execute(item)
            if not run:
                return ExecutionResult({name: value}, None)
            self._only_field = None  # it has fields that are loaded for each message
        return await self._execute(item)

    async def _execute(self, item: object) -> ExecutionResult:
        result: Any = self._executor.build_per_event_executor(item).execute_operation(False)
        if isawaitable(result):
            result = await result
        if not isinstance(result, ExecutionResult):
            raise TypeError("incremental delivery is not supported")
        return result


async def begin_subscription(
    schema: Schema, document: Document, request: Request, context: Context
) -> SubscriptionExecution:
    """Raises InvalidVariables when variables are invalid or the resolver refuses."""
    operation = document.operation(request.operation_name)
    executor = build_executor(schema, document, operation, request.variables, context)
    executor.use_plan(operation, at_once=True)  # it is executed for every message
    create = cast("Any", graphql.create_source_event_stream)  # pyright: ignore[reportUnknownMemberType]
    stream: Any = create(executor)
    if isawaitable(stream):
        stream = await stream
    if isinstance(stream, ExecutionResult):
        raise InvalidVariables(stream.errors or [])
    if not isinstance(stream, EventSource):
        raise TypeError("a subscription answers with a Feed")
    return SubscriptionExecution(executor, stream)
