"""Runs the API in a process of its own. Not in the module of the workers, which do not import GraphQL."""

from contextlib import AsyncExitStack
from pathlib import Path

from server.cli.console import report_progress
from server.cli.database_wait import wait_for_database
from server.cli.ready_file import Ready, write_whole
from server.cli.roles import Provider, check_database, refuse_public_without_token
from server.config import Settings
from server.http.listener import address_of, bind, stop_event
from server.http.serve import serve_http
from server.runtime import Runtime


async def run_api(settings: Settings, database_url: str, provider: Provider, *, ready_file: Path | None) -> None:
    """Run only the API, until a signal stops it."""
    stop = stop_event()
    listener = bind(settings.host, settings.port)
    if not await wait_for_database(settings, lambda: check_database(settings, database_url), stop, listener):
        return
    await refuse_public_without_token(settings, database_url)
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        runtime = await stack.enter_async_context(
            Runtime(settings, database_url=database_url, novita_url=provider.url, novita_key=provider.key)
        )
        runtime.follow_events()
        runtime.warm_catalog()
        await stack.enter_async_context(serve_http(runtime, listener))
        ready = Ready.at(address_of(listener), database_url)
        text = f"Pilotlight API is ready at {ready.graphql_url}"
        report_progress("api.ready", text, graphql_url=ready.graphql_url)
        if ready_file is not None:
            write_whole(ready_file, ready.to_json())
        await stop.wait()
