"""`pilotlight mcp`: the tools for agents over standard input and output."""

import asyncio
import os

import typer

from server.cli.user.exits import UNREACHABLE, USAGE, fail


def mcp() -> None:
    """Serve the tools for agents over stdio, with the server and token of this context."""
    from pilotlight_client import AsyncPilotlight, NotConfigured

    try:
        from server.mcp.server import build_server
    except ImportError:
        raise fail("the MCP server is not installed: pip install 'pilotlight[mcp]'", USAGE) from None
    import importlib.metadata

    try:
        client = AsyncPilotlight()
    except NotConfigured as problem:
        raise fail(str(problem), UNREACHABLE) from None
    required = os.environ.get("MCP_REQUIRE_LIFETIME", "true").lower() not in ("false", "off", "no", "0")
    version = importlib.metadata.version("pilotlight")

    async def serve() -> None:
        async with client:
            await build_server(lambda _: client, version=version, require_lifetime=required).run_stdio_async()

    asyncio.run(serve())
    raise typer.Exit
