"""Executes queries and mutations, and prepares subscriptions, the same for every transport."""

from collections.abc import Coroutine
from typing import Any, cast

from graphql import ExecutionResult, GraphQLError
from strawberry import Schema
from strawberry.execution import optimized_is_awaitable

from schema.context import Context
from server.graphql.documents.core_types import core_of
from server.graphql.documents.document import Document, Operation
from server.graphql.documents.store import shows_suggestions
from server.graphql.execution.executor import CompilingExecutor


class InvalidVariables(Exception):
    """The variables do not fit the operation; nothing was executed."""

    def __init__(self, errors: list[GraphQLError]) -> None:
        # Without the errors: they quote the values, and a message may be logged.
        super().__init__("the variables do not fit the operation")
        self.errors = errors


def execute(executor: Any, operation: Operation) -> ExecutionResult | Coroutine[Any, Any, ExecutionResult]:
    """The result of a valid document's query or mutation, with errors that are not masked yet; no coroutine if there is
    nothing to wait for."""
    executor.use_plan(operation)
    return cast("ExecutionResult | Coroutine[Any, Any, ExecutionResult]", executor.execute_operation())


def build_executor(
    schema: Schema, document: Document, operation: Operation, variables: dict[str, Any], context: Context
) -> Any:
    """An executor with these variables; raises InvalidVariables."""
    executor = cast("Any", CompilingExecutor).build(
        core_of(schema),
        document.node,
        context_value=context,
        raw_variable_values=variables,
        operation_name=operation.name,
        is_awaitable=optimized_is_awaitable,
        hide_suggestions=not shows_suggestions(context.services.settings),
    )
    if isinstance(executor, list):
        raise InvalidVariables(cast("list[GraphQLError]", executor))
    return executor
