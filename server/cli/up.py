"""Runs everything in one process: database, simulator, API, workers."""

import shlex
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import structlog
from pilotlight_client.connection import LOCAL_FILE
from pydantic import SecretStr

from server.auth.tokens import DEFAULT_PROJECT, create_token, limit_to_loopback, new_secret
from server.cli.build_pages import Builder
from server.cli.console import console, report_progress, step
from server.cli.database_wait import wait_for_database
from server.cli.loop_thread import LoopThread
from server.cli.ready_file import Ready, write_whole
from server.cli.roles import Provider, refuse_public_without_token
from server.cli.simulate import configured_dialect
from server.config import Settings
from server.db import migrate
from server.db.embedded.server import EmbeddedPostgres
from server.enums import Role
from server.errors import NovitaError, StartupProblem
from server.http.listener import address_of, bind, stop_event
from server.http.pages import Development, Pages
from server.http.serve import serve_http
from server.runtime import Runtime
from server.simulator.journal import STATE_FILE
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from server.ssrf import PrivateAddresses
from server.webhooks.signing import make_key

log = structlog.get_logger(__name__)

FIRST_QUERY = """curl -s {graphql_url} \\
  -H 'authorization: Bearer {token}' -H 'content-type: application/json' \\
  -d '{{"query": "mutation {{ createInstance(input: {{name: \\"first\\", productName: \\"RTX 4090 24GB\\", \
image: \\"nginx\\", ports: [{{port: 80}}]{limit}}}) {{ instance {{ id status }} errors {{ code message }} }} }}"}}'"""


FIRST_COMMAND = 'create first --product "RTX 4090 24GB" --image nginx --port 80'

# With real machines, both show how to limit what is paid.
PRICE_LIMIT = ", maxHourlyPrice: {amountMicros: 500000}"
MAX_PRICE = " --max-price 0.5"


async def up(settings: Settings, *, ready_file: Path | None) -> None:
    """Start everything, print the addresses, and run until a signal stops it."""
    started = time.monotonic()
    stop = stop_event()
    listener = bind(settings.host, settings.port)
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        home = _home(settings)
        given = settings.database_url
        if given is not None:
            server = given.get_secret_value()
            if not await wait_for_database(settings, lambda: migrate.check_server(server), stop, listener):
                return
        database_url = await stack.enter_async_context(database(settings, home))
        await refuse_public_without_token(settings, database_url)
        with _usable(home):
            settings = _for_development(settings, home)
            # The workers have a loop of their own: a flood of requests delays no lease and no provider call. The
            # simulator shares it, because workers wait for it.
            apart = await stack.enter_async_context(LoopThread("workers"))
            provider = await stack.enter_async_context(_provider(settings, home, apart))
        runtime = await stack.enter_async_context(
            Runtime(settings, database_url=database_url, novita_url=provider.url, novita_key=provider.key)
        )
        money = await _check_account(runtime, provider)
        with _usable(home):
            token = await _development_token(runtime, home)
        runtime.follow_events()
        runtime.warm_catalog()
        working = await stack.enter_async_context(
            apart.holding(
                lambda: Runtime(
                    settings,
                    database_url=database_url,
                    novita_url=provider.url,
                    novita_key=provider.key,
                    beside=runtime,
                )
            )
        )
        await apart.run(_in_loop(working.work))
        with step("API and workers"):
            builder = Builder()
            development = Development(token=token, build_status=lambda: builder.status)
            pages = Pages(development, is_loopback=settings.is_loopback)
            await stack.enter_async_context(serve_http(runtime, listener, pages=pages))
        if settings.build_pages:
            await stack.enter_async_context(builder.in_background())  # last: the API must not wait for it
        simulator_url = provider.url if provider.is_simulated else None
        ready = Ready.at(address_of(listener), database_url, token=token, simulator_url=simulator_url)
        _announce(ready, provider, home, money, seconds=time.monotonic() - started)
        if token is not None:
            stack.enter_context(_local_server(home, ready))
        if ready_file is not None:
            write_whole(ready_file, ready.to_json())
        await stop.wait()
        runtime.begin_stop()
        await apart.run(_in_loop(working.begin_stop))
        report_progress("up.stopping", "[dim]Stopping …[/dim]")


@contextmanager
def _local_server(home: Path, ready: Ready) -> Generator[None]:
    """For the commands and clients of this folder: where the server is, and the development token."""
    file = home / LOCAL_FILE
    with _usable(home):
        write_whole(file, ready.to_json())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


@asynccontextmanager
async def database(settings: Settings, home: Path) -> AsyncGenerator[str]:
    """The URL of a migrated database: DATABASE_URL, else an embedded server."""
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
async def _provider(settings: Settings, home: Path, apart: LoopThread) -> AsyncGenerator[Provider]:
    if settings.novita_api_key is not None:
        yield Provider(settings.novita_api_base_url, settings.novita_api_key, is_simulated=False)
        return
    with step("simulator"):
        home.mkdir(parents=True, exist_ok=True)
        simulator = Simulator(
            SimulatorOptions(
                speed=settings.simulator_speed,
                state_file=home / STATE_FILE,
                dialect=configured_dialect(settings),
            )
        )
        await apart.run(simulator.start())
    try:
        yield Provider(simulator.url, SecretStr(simulator.api_key), is_simulated=True)
    finally:
        await apart.run(simulator.stop())


async def _in_loop(call: Callable[[], None]) -> None:
    """For a call that starts tasks: they belong to the loop that runs this."""
    call()


async def _check_account(runtime: Runtime, provider: Provider) -> str | None:
    """What the account has to spend, in a few words; None with a simulator. Refuses to start with a refused key."""
    guard = runtime.provider
    if guard.refuses_key:
        raise StartupProblem(f"{provider.url} does not accept NOVITA_API_KEY: {guard.problem}")
    if guard.is_simulator:
        return None
    try:
        balance = await runtime.novita.balance()
    except NovitaError as error:
        return f"its balance is not known: {error.message}"
    return f"its balance is {balance}" + ("" if balance.available_e4 > 0 else ", so creates will be refused")


async def _development_token(runtime: Runtime, home: Path) -> str | None:
    """On loopback: one token, the same after a restart. On other addresses None: the operator makes tokens."""
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
        await limit_to_loopback(session, secret)
    return secret


def _for_development(settings: Settings, home: Path) -> Settings:
    """Allow webhooks to this machine unless ALLOW_PRIVATE_WEBHOOKS is set, and make a signing key if there is none."""
    if settings.webhook_signing_key is None:
        make_key(home)
    if "allow_private_webhooks" in settings.model_fields_set or not settings.is_loopback:
        return settings
    return settings.model_copy(update={"allow_private_webhooks": PrivateAddresses.LOOPBACK})


@contextmanager
def _usable(home: Path) -> Generator[None]:
    """Turn a file error in the home folder into one sentence for the operator."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise  # not about a file: a connection, say
        raise StartupProblem(f"The home {home} can't be used: {error.strerror}.") from None


def _home(settings: Settings) -> Path:
    home = settings.pilotlight_home.expanduser()
    return home if home.is_absolute() else Path.cwd() / home


def _announce(ready: Ready, provider: Provider, home: Path, money: str | None, *, seconds: float) -> None:
    real = None if money is None else f"every instance is a real machine at {provider.url} and is billed; {money}"
    if console.quiet:
        # Without the token: logs are stored and forwarded. The token is in the home folder.
        log.info(
            "up.ready", graphql_url=ready.graphql_url, simulator_url=ready.simulator_url, seconds=round(seconds, 3)
        )
        if real is not None:
            log.warning("up.real_machines", note=real)
        return
    print_line: Callable[[str], None] = console.print
    print_line(f"\n[bold]Pilotlight is ready[/bold] [dim]after {seconds:.1f} s[/dim]\n")
    if real is None:
        why = "no NOVITA_API_KEY is set" if provider.is_simulated else f"{provider.url} is one"
        print_line(f"[bold yellow]SIMULATOR[/bold yellow]  {why}: nothing real is created and nothing is billed\n")
    else:
        print_line(f"[bold red]REAL MACHINES[/bold red]  NOVITA_API_KEY is set: {real}\n")
    print_line(f"  dashboard  {ready.graphql_url.removesuffix('graphql')}")
    print_line(f"  GraphQL    {ready.graphql_url}")
    print_line(f"  WebSocket  {ready.websocket_url}")
    if ready.token is not None:
        print_line(f"  token      {ready.token}")
        print_line("\nA first instance, from another terminal of this folder:\n")
        command = f"{_command(home)} {FIRST_COMMAND}{'' if real is None else MAX_PRICE}"
        console.print(command, markup=False)
        print_line("\nThe same by GraphQL:\n")
        limit = "" if real is None else PRICE_LIMIT
        query = FIRST_QUERY.format(graphql_url=ready.graphql_url, token=ready.token, limit=limit)
        console.print(query, markup=False)
    print_line("\n[dim]Ctrl-C stops everything; the data stays.[/dim]")


def _command(home: Path) -> str:
    """What runs this command again; with the home, unless it is found from this folder."""
    called = sys.argv[0] if shutil.which("pilotlight") != sys.argv[0] else "pilotlight"
    found = home == Path.cwd() / Settings.model_fields["pilotlight_home"].default
    return shlex.quote(called) if found else f"PILOTLIGHT_HOME={shlex.quote(str(home))} {shlex.quote(called)}"
