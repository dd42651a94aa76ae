"""Everything in one process: database, simulator, API, workers. The first minute of every user."""

import os
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import structlog
from pydantic import SecretStr

from server.alone import Provider, refuse_open_door
from server.auth.tokens import DEFAULT_PROJECT, create_token, new_secret
from server.building import Builder
from server.config import Settings
from server.db import migrate
from server.db.embedded import EmbeddedPostgres
from server.errors import StartupProblem
from server.guard import Inside
from server.novita.simulator.options import SimulatorOptions
from server.novita.simulator.run import Simulator
from server.pages import Development, Pages
from server.progress import console, step, tell
from server.ready import Ready, write_whole
from server.runtime import Runtime
from server.serving import address_of, bind, http, stop_event
from server.webhooks.key import make_key
from server.words import Role

log = structlog.get_logger(__name__)

FIRST_QUERY = """curl -s {graphql_url} \\
  -H 'authorization: Bearer {token}' -H 'content-type: application/json' \\
  -d '{{"query": "mutation {{ createInstance(input: {{name: \\"first\\", productName: \\"RTX 4090 24GB\\", \
image: \\"nginx\\", ports: [{{port: 80}}]}}) {{ instance {{ id status }} errors {{ code message }} }} }}"}}'"""


async def up(settings: Settings, *, ready_file: Path | None) -> None:
    """Start everything, say where it is, and run until told to stop."""
    started = time.monotonic()
    stop = stop_event()
    listener = bind(settings.host, settings.port)
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        home = _home(settings)
        database_url = await stack.enter_async_context(database(settings, home))
        await refuse_open_door(settings, database_url)
        with _usable(home):
            settings = _for_development(settings, home)
            provider = await stack.enter_async_context(_provider(settings, home))
        runtime = await stack.enter_async_context(
            Runtime(settings, database_url=database_url, novita_url=provider.url, novita_key=provider.key)
        )
        with _usable(home):
            token = await _development_token(runtime, home)
        runtime.follow_events()
        runtime.work()
        with step("API and workers"):
            builder = Builder()
            development = Development(token=token, standing=lambda: builder.standing)
            pages = Pages(development, is_loopback=settings.is_loopback)
            await stack.enter_async_context(http(runtime, listener, pages=pages))
        if settings.build_pages:
            await stack.enter_async_context(builder.at_work())  # after all that the API needs, and behind it
        at = address_of(listener)
        ready = Ready(
            graphql_url=f"http://{at}/graphql",
            websocket_url=f"ws://{at}/graphql",
            token=token,
            simulator_url=provider.url if provider.is_simulated else None,
            database_url=database_url,
            pid=os.getpid(),
        )
        _announce(ready, provider, seconds=time.monotonic() - started)
        if ready_file is not None:
            write_whole(ready_file, ready.to_json())
        await stop.wait()
        runtime.begin_stop()
        tell("up.stopping", "[dim]Stopping …[/dim]")


@asynccontextmanager
async def database(settings: Settings, home: Path) -> AsyncGenerator[str]:
    """A server with the right tables: the one of DATABASE_URL, else an embedded one."""
    async with AsyncExitStack() as stack:
        if settings.database_url is not None:
            url = settings.database_url.get_secret_value()
        else:
            with step("PostgreSQL"):
                running = await stack.enter_async_context(EmbeddedPostgres(home, log=log.warning))
            url = running.url
        with step("tables"):
            await migrate.check_server(url)
            await migrate.upgrade(settings.directly(url))
        yield url


@asynccontextmanager
async def _provider(settings: Settings, home: Path) -> AsyncGenerator[Provider]:
    if settings.novita_api_key is not None:
        yield Provider(settings.novita_api_base_url, settings.novita_api_key, is_simulated=False)
        return
    with step("simulator"):
        home.mkdir(parents=True, exist_ok=True)
        simulator = Simulator(SimulatorOptions(speed=settings.simulator_speed, state_file=home / "simulator.state"))
        await simulator.start()
    try:
        yield Provider(simulator.url, SecretStr(simulator.api_key), is_simulated=True)
    finally:
        await simulator.stop()


async def _development_token(runtime: Runtime, home: Path) -> str | None:
    """On loopback: one token that stays the same over restarts. Elsewhere whoever runs us has made their own."""
    if not runtime.settings.is_loopback:
        return None
    file = home / "token"
    try:
        secret = file.read_text().strip()
    except FileNotFoundError:
        secret = new_secret()
        write_whole(file, secret)
    async with runtime.database.write() as session:
        await create_token(session, project=DEFAULT_PROJECT, name="development", role=Role.ADMIN, secret=secret)
    return secret


def _for_development(settings: Settings, home: Path) -> Settings:
    """Receivers on this machine may be told, unless somebody said otherwise; and there is a key to sign with."""
    if settings.webhook_signing_key is None:
        make_key(home)
    if "allow_private_webhooks" in settings.model_fields_set or not settings.is_loopback:
        return settings
    return settings.model_copy(update={"allow_private_webhooks": Inside.LOOPBACK})


@contextmanager
def _usable(home: Path) -> Generator[None]:
    """What goes into the home goes wrong in one sentence."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise  # not about a file: a connection, say
        raise StartupProblem(f"The home {home} can't be used: {error.strerror}.") from None


def _home(settings: Settings) -> Path:
    home = settings.pilotlight_home.expanduser()
    return home if home.is_absolute() else Path.cwd() / home


def _announce(ready: Ready, provider: Provider, *, seconds: float) -> None:
    if console.quiet:
        # Without the token: logs are kept and sent around. Whoever may have it reads it in the home.
        log.info(
            "up.ready", graphql_url=ready.graphql_url, simulator_url=ready.simulator_url, seconds=round(seconds, 3)
        )
        return
    say: Callable[[str], None] = console.print
    say(f"\n[bold]Pilotlight is ready[/bold] [dim]after {seconds:.1f} s[/dim]\n")
    if provider.is_simulated:
        say(
            "[bold yellow]SIMULATOR[/bold yellow]  no NOVITA_API_KEY is set: "
            "nothing real is created and nothing is billed\n"
        )
    say(f"  dashboard  {ready.graphql_url.removesuffix('graphql')}")
    say(f"  GraphQL    {ready.graphql_url}")
    say(f"  WebSocket  {ready.websocket_url}")
    if ready.token is not None:
        say(f"  token      {ready.token}")
        say("\nA first instance:\n")
        console.print(FIRST_QUERY.format(graphql_url=ready.graphql_url, token=ready.token), markup=False)
    say("\n[dim]Ctrl-C stops everything; the data stays.[/dim]")
