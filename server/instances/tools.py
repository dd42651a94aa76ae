"""Tools that the provider runs beside the container: SSH and Jupyter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from server.enums import ToolName
from server.errors import Problem

MAX_PORTS = 15  # of ports and tools together
# The provider documents the name Jupyter only; SSH is named alike.
KNOWN = {ToolName.SSH: ("SSH", 22, "tcp"), ToolName.JUPYTER: ("Jupyter", 8888, "http")}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with the provider's name, and the port that it is exposed on."""

    name: str
    port: int
    type: str

    @classmethod
    def of(cls, name: ToolName, port: int | None = None) -> "Tool":
        provider_name, usual_port, type = KNOWN.get(name, (name.value, 0, "http"))
        return cls(provider_name, usual_port if port is None else port, type)


def tool_name(provider_name: str) -> ToolName:
    """Our name of a tool; templates may have any."""
    for name, (known, _, _) in KNOWN.items():
        if known.casefold() == provider_name.strip().casefold():
            return name
    return ToolName.OTHER


def tool_problems(tools: Sequence[Tool], ports: Mapping[int, str]) -> Iterator[Problem]:
    """`ports` are the exposed ports with their types; a tool may use one of them."""
    for index, tool in enumerate(tools):
        path = ("input", "tools", str(index))
        if tool.name == ToolName.OTHER:
            yield Problem("INVALID_TOOL", "A tool is SSH or JUPYTER.", path)
        elif not 1 <= tool.port <= 65535:
            yield Problem("INVALID_TOOL", "A tool's port is 1 to 65535.", path)
        elif ports.get(tool.port, tool.type) != tool.type:
            yield Problem("INVALID_TOOL", f"Port {tool.port} is exposed as {ports[tool.port]} already.", path)
    if len({tool.name for tool in tools}) != len(tools) or len({tool.port for tool in tools}) != len(tools):
        yield Problem("INVALID_TOOL", "A tool or its port is given twice.", ("input", "tools"))
    if tools and len({*ports, *(tool.port for tool in tools)}) > MAX_PORTS:
        yield Problem("INVALID_TOOL", f"Ports and tools together are at most {MAX_PORTS}.", ("input", "tools"))
