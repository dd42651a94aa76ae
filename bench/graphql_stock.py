"""The same schema, resolvers and database on Strawberry as it comes: its own ASGI view and executor.

    python -m bench.graphql_stock <port file>

Settings come from the environment, as for `pilotlight serve`.
"""

import asyncio
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import Route
from strawberry.asgi import GraphQL

from schema.context import Context, Services
from schema.root import schema
from server.config import Settings
from server.runtime import Runtime


class PlainStrawberry(GraphQL[Any, None]):
    """Strawberry's view; only the token is checked by Pilotlight."""

    def __init__(self, services: Services) -> None:
        super().__init__(schema, graphql_ide=None)
        self._services = services

    async def get_context(self, request: Any, response: Any) -> Any:
        context = Context(self._services, request_id="req_stock", is_socket=False)
        caller = await self._services.tokens.caller_of(request.headers["authorization"].removeprefix("Bearer "))
        if caller is None:
            raise PermissionError("unknown token")
        context.admit(caller)
        return context


async def main(port_file: Path) -> None:
    settings = Settings()
    if settings.database_url is None or settings.novita_api_key is None:
        raise SystemExit("DATABASE_URL and NOVITA_API_KEY are needed")
    runtime = Runtime(
        settings,
        database_url=settings.database_url.get_secret_value(),
        novita_url=settings.novita_api_base_url,
        novita_key=settings.novita_api_key,
    )
    async with runtime:
        services = Services(**{each.name: getattr(runtime, each.name) for each in fields(Services)})
        app = Starlette(routes=[Route("/graphql", PlainStrawberry(services), methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        port_file.write_text(f"http://127.0.0.1:{port}/graphql")
        await serving


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
