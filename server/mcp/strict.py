"""Arguments of a call, checked: a misspelled limit must not be ignored, and a refusal always has the same form."""

import difflib
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, Tool
from pydantic import ValidationError

from server.mcp.problems import of_arguments, problem

CODE = "INVALID_ARGUMENT"
NAME_MAX = 100  # characters of a name that are compared: with a megabyte it takes a fifth of a second


class StrictServer(MCPServer):
    """Refuses arguments that a tool does not have, with the nearest name."""

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        return [
            each.model_copy(update={"input_schema": {**each.input_schema, "additionalProperties": False}})
            for each in tools
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        schema = self._tool_input_schema(name)
        known: list[str] = [] if schema is None else list(schema["properties"])
        for given in arguments:
            if schema is not None and given not in known:
                near = difflib.get_close_matches(given[:NAME_MAX], known, 1)
                remedy = f"Did you mean {near[0]}?" if near else f"The arguments are {', '.join(known)}."
                raise ToolError(problem(CODE, f"{name} has no argument {given!r}.", path=[given], remedy=remedy))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ToolError(of_arguments(CODE, cause)) from cause
            if type(cause) is ToolError:
                raise cause from None  # without the prefix of the SDK, so that the text is JSON
            raise
