"""The one place where a query or a mutation is carried out, however it came in."""

from inspect import isawaitable
from typing import Any, cast

from graphql import ExecutionResult, GraphQLError
from strawberry import Schema
from strawberry.execution import optimized_is_awaitable

from schema.context import Context
from schema.documents.document import Document, Operation
from schema.execution.executor import CompilingExecutor
from schema.execution.resolvers import quicken
from schema.root import schema

quicken(schema)


class Unfit(Exception):
    """The variables do not fit the operation: nothing was carried out."""

    def __init__(self, errors: list[GraphQLError]) -> None:
        super().__init__(errors)
        self.errors = errors


async def execute(
    document: Document, operation: Operation, variables: dict[str, Any], context: Context
) -> ExecutionResult:
    """What a valid document's query or mutation answers, with errors that nobody has looked at yet.

    Raises Unfit before anything has happened.
    """
    executor = _executor(schema, document, operation, variables, context)
    if isinstance(executor, list):
        raise Unfit(cast("list[GraphQLError]", executor))
    executor.follow(operation)
    result: Any = executor.execute_operation()
    if isawaitable(result):
        result = await result
    return cast("ExecutionResult", result)


def _executor(
    schema: Schema, document: Document, operation: Operation, variables: dict[str, Any], context: Context
) -> Any:
    kind = cast("Any", CompilingExecutor)
    return kind.build(
        schema._schema,  # pyright: ignore[reportPrivateUsage] - it has no other name
        document.node,
        context_value=context,
        raw_variable_values=variables,
        operation_name=operation.name,
        is_awaitable=optimized_is_awaitable,
        hide_suggestions=not context.services.settings.suggestions,
    )
