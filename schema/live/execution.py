"""A subscription in the GraphQL library's hands: its source once, then one execution for each message."""

from inspect import isawaitable
from typing import Any, cast

import graphql
from graphql import ExecutionResult, GraphQLError
from strawberry import Schema

from schema.context import Context
from schema.documents.core import core_of
from schema.documents.document import Document
from schema.documents.request import Request
from schema.execution.executor import CompilingExecutor
from schema.execution.run import Unfit
from schema.live.feeds import Feed


class Execution:
    """Variables are read once; each message shares them."""

    def __init__(self, executor: Any, feed: Feed) -> None:
        self._executor = executor  # its types say Unknown: what crosses this border is checked below
        self.feed = feed

    async def result_of(self, item: object) -> ExecutionResult:
        result: Any = self._executor.build_per_event_executor(item).execute_operation(False)
        if isawaitable(result):
            result = await result
        if not isinstance(result, ExecutionResult):
            raise TypeError("results in parts are not spoken here")
        return result


async def begin(schema: Schema, document: Document, request: Request, context: Context) -> Execution:
    """Raises Unfit when variables do not fit or the resolver refuses."""
    executor: Any = cast("Any", CompilingExecutor).build(
        core_of(schema),
        document.node,
        context_value=context,
        raw_variable_values=request.variables,
        operation_name=request.operation_name,
        hide_suggestions=not context.services.settings.suggestions,
    )
    if isinstance(executor, list):
        raise Unfit(cast("list[GraphQLError]", executor))
    executor.follow(document.operation(request.operation_name), is_known=True)  # it will run for every message
    create = cast("Any", graphql.create_source_event_stream)  # pyright: ignore[reportUnknownMemberType]
    stream: Any = create(executor)
    if isawaitable(stream):
        stream = await stream
    if isinstance(stream, ExecutionResult):
        raise Unfit(stream.errors or [])
    if not isinstance(stream, Feed):
        raise TypeError("a subscription answers with a Feed")
    return Execution(executor, stream)
