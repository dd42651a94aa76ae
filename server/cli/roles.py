"""Runs the workers in a process of their own, and what an API process does as well before it starts."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from pydantic import SecretStr

from server.auth.tokens import any_token, limit_to_loopback
from server.cli.console import report_progress
from server.cli.database_wait import wait_for_database
from server.config import Settings
from server.db import migrate
from server.db.database import Database
from server.db.outages import DATABASE_ERRORS, is_database_away
from server.errors import DatabaseAway, StartupProblem
from server.http.listener import address_of, bind, stop_event
from server.http.serve_health import serve_health
from server.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider's address, and our API key for it."""

    url: str
    key: SecretStr
    is_simulated: bool


async def run_worker(settings: Settings, database_url: str, provider: Provider) -> None:
    """Run only the workers, until a signal stops them."""
    stop = stop_event()
    listener = None if settings.worker_port is None else bind(settings.host, settings.worker_port)
    if not await wait_for_database(settings, lambda: check_database(settings, database_url), stop, listener):
        return
    async with AsyncExitStack() as stack:
        address: dict[str, str] = {}
        if listener is not None:
            stack.callback(listener.close)
            address = {"url": f"http://{address_of(listener)}"}
        runtime = Runtime(settings, database_url=database_url, novita_url=provider.url, novita_key=provider.key)
        if listener is not None:
            await stack.enter_async_context(serve_health(runtime, listener))
        await stack.enter_async_context(runtime)
        runtime.work()
        runtime.warm_catalog()
        report_progress("worker.ready", " ".join(["Pilotlight worker is ready", *address.values()]), **address)
        await stop.wait()
        runtime.begin_stop()


async def refuse_public_without_token(settings: Settings, database_url: str) -> None:
    """Refuse to listen on a public address while there is no token. Called before any part is started."""
    if settings.is_loopback:
        return
    database = Database(settings.directly(database_url), pool_size=1)
    try:
        await _limit_development_token(settings, database)
        async with database.read() as session:
            if await any_token(session, is_loopback=False):
                return
            is_only_development = await any_token(session)
    finally:
        await database.close()
    found = "only the development token, which is valid on loopback only" if is_only_development else "no token yet"
    raise StartupProblem(
        f"{settings.host} can be reached from elsewhere and there is {found}; "
        "make one with `pilotlight token create`, or listen on 127.0.0.1"
    )


async def _limit_development_token(settings: Settings, database: Database) -> None:
    """A home that was used on loopback has the development token in a file: it must not be valid here."""
    try:
        secret = (settings.pilotlight_home.expanduser() / "token").read_text().strip()
    except OSError:
        return
    async with database.write() as session:
        await limit_to_loopback(session, secret)


async def check_database(settings: Settings, database_url: str) -> None:
    """Before any part is started: a sequencer must not write to tables that it does not know."""
    url = settings.directly(database_url)
    await migrate.check_server(url)
    database = Database(url, pool_size=1)
    try:
        await migrate.check_is_current(database)
    except DATABASE_ERRORS as error:
        if not is_database_away(error):
            raise
        raise DatabaseAway(f"the database went away: {type(error).__name__}") from error
    finally:
        await database.close()
