"""Errors of the client as the text of a failed call: code, message, path and remedy."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pilotlight_client import NotFound, PilotlightError, Refused, RequestFailed
from pydantic import ValidationError

from server.error_codes import help_of

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def with_refusals(
    call: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> Callable[Arguments, Awaitable[Result]]:
    """An error of the client as the text of a failed call: code, message, path and remedy."""

    @wraps(call)
    async def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return await call(*args, **kwargs)
        except Refused as refused:
            raise ToolError(
                _text(
                    {"code": each.code, "message": each.message, "path": list(each.path), "remedy": each.help}
                    for each in refused.errors
                )
            ) from None
        except RequestFailed as failed:
            raise ToolError(problem(failed.code, failed.message, remedy=help_of(failed.code))) from None
        except PilotlightError as error:
            code, remedy = (
                ("NOT_FOUND", "list_instances shows the instances with their open operations.")
                if isinstance(error, NotFound)
                else ("UNREACHABLE", "Call again with the same arguments, also the same operation_key.")
            )
            raise ToolError(problem(code, str(error), remedy=remedy)) from None

    return run


def _text(problems: Iterable[dict[str, Any]]) -> str:
    return json.dumps({"errors": list(problems)})


def of_arguments(code: str, error: ValidationError) -> str:
    """Arguments that do not fit the tool's schema."""
    remedy = "Correct the argument that `path` names; the tool's input schema has its limits."
    return _text(
        {"code": code, "message": f"{each['msg']}.", "path": [str(part) for part in each["loc"]], "remedy": remedy}
        for each in error.errors(include_url=False, include_context=False)
    )


def problem(code: str, message: str, *, path: Sequence[str] = (), remedy: str | None = None) -> str:
    return _text([{"code": code, "message": message, "path": list(path), "remedy": remedy}])
