"""Errors of the client as the text of a failed call: code, message, path and remedy."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pilotlight_client import NotFound, PilotlightError, Refused, RequestFailed

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
            raise ToolError(
                problem("NOT_FOUND" if isinstance(error, NotFound) else "UNREACHABLE", str(error))
            ) from None

    return run


def _text(problems: Iterable[dict[str, Any]]) -> str:
    return json.dumps({"errors": list(problems)})


def problem(code: str, message: str, *, path: Sequence[str] = (), remedy: str | None = None) -> str:
    return _text([{"code": code, "message": message, "path": list(path), "remedy": remedy}])
