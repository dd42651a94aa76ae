"""The `pilotlight` command.

A command imports what it needs when it is run: `--version` and `--help` would otherwise wait seconds for parts of the
server that they do not use.
"""

import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from server.cli.sdl import sdl
from server.cli.user.access import answer_askpass
from server.cli.user.contexts import is_completing
from server.cli.user.register import register
from server.enums import Role
from server.errors import StartupProblem

if TYPE_CHECKING:
    from server.cli.roles import Provider
    from server.config import Settings

# Plain text: importing rich for boxes around the help costs more CPU than all the rest of it.
app = typer.Typer(
    no_args_is_help=True,
    add_completion=is_completing(),
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)
tokens = typer.Typer(no_args_is_help=True, help="Tokens that callers present.")
audit = typer.Typer(no_args_is_help=True, help="The audit log.")
provider = typer.Typer(no_args_is_help=True, help="The provider that the database belongs to.")
app.add_typer(tokens, name="token")
app.add_typer(provider, name="provider")
app.add_typer(sdl, name="schema")
app.add_typer(audit, name="audit")

register(app, tokens)

Result = TypeVar("Result")

Host = Annotated[str | None, typer.Option(help="Address to listen on (HOST).")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one (PORT).")]
Home = Annotated[Path | None, typer.Option(help="Folder for data (PILOTLIGHT_HOME).")]
ReadyFile = Annotated[Path | None, typer.Option(help="Written as JSON once everything answers.")]


def main() -> None:
    """Print problems that the operator can fix as one sentence, not as a traceback."""
    gc.disable()  # imports make no garbage, but looking for it takes a sixth of their time; `_run` enables it again
    if answer_askpass():
        return
    try:
        app()
    except StartupProblem as problem:
        typer.echo(f"pilotlight: {problem}", err=True)
        sys.exit(1)
    finally:
        gc.freeze()  # at its end, the interpreter would look through all of it once more


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("pilotlight")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(_version())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A GraphQL control plane for GPU instances."""


@app.command()
def up(host: Host = None, port: Port = None, home: Home = None, ready_file: ReadyFile = None) -> None:
    """Run everything in one process: database, simulator, API, workers."""
    from server.cli.up import up as run_up

    _run(run_up(_settings(host=host, port=port, pilotlight_home=home), ready_file=ready_file))


@app.command()
def serve(host: Host = None, port: Port = None, home: Home = None, ready_file: ReadyFile = None) -> None:
    """Run the API alone, over a database that is migrated already."""
    from server.cli.serve import run_api

    settings = _settings(host=host, port=port, pilotlight_home=home)
    _run(run_api(settings, _database_url(settings), _provider(settings), ready_file=ready_file))


@app.command()
def worker(home: Home = None) -> None:
    """Run the workers alone."""
    from server.cli.roles import run_worker

    settings = _settings(pilotlight_home=home)
    _run(run_worker(settings, _database_url(settings), _provider(settings)))


@app.command()
def simulate(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8001,
    speed: Annotated[float | None, typer.Option(help="How fast simulated time passes (SIMULATOR_SPEED).")] = None,
    state_file: Annotated[Path | None, typer.Option(help="Keeps the simulated world across restarts.")] = None,
    api_key: Annotated[list[str] | None, typer.Option(help="Accept only this key; can be given several times.")] = None,
    dialect: Annotated[str | None, typer.Option(help="As in docs/provider.md (SIMULATOR_DIALECT).")] = None,
    scenario: Annotated[Path | None, typer.Option(help="A scripted day: see docs/simulator.md.")] = None,
) -> None:
    """Run the simulator of the provider alone."""
    from server.cli.simulate import simulate as run_simulator

    settings = _settings(simulator_speed=speed, simulator_dialect=dialect)
    keys = tuple(api_key or ())
    _run(run_simulator(settings, host=host, port=port, api_keys=keys, state_file=state_file, scenario=scenario))


@app.command()
def migrate(
    home: Home = None,
    revision: Annotated[str, typer.Option(help="Where to go; `head` is the newest.")] = "head",
    down: Annotated[bool, typer.Option("--down", help="Go down to the revision; `base` empties the database.")] = False,
) -> None:
    """Migrate the database to the tables of this version."""
    from server.db import migrate as migrations
    from server.db.database import Database

    settings = _settings(pilotlight_home=home)

    async def run(url: str) -> None:
        await migrations.check_server(url)
        await (migrations.downgrade(url, revision) if down else migrations.upgrade(url, revision))
        database = Database(url)
        typer.echo(f"the database is at revision {await migrations.current_revision(database)}")
        await database.close()

    _run(_with_database(settings, run))


@app.command()
def encrypt(
    undo: Annotated[
        bool, typer.Option("--undo", help="Store them in clear, before ENCRYPTION_KEY is removed.")
    ] = False,
    home: Home = None,
) -> None:
    """Encrypt stored environment variables with the first key of ENCRYPTION_KEY."""
    from server.cli.encrypt import encrypt as run_encrypt

    settings = _settings(pilotlight_home=home)
    _run(_with_database(settings, lambda url: run_encrypt(settings, url, undo=undo)))


@tokens.command("create")
def token_create(
    name: Annotated[str, typer.Argument(help="What it is for; shown beside everything it does.")],
    project: Annotated[str | None, typer.Option(help="Owns what is made with it; created if it is new.")] = None,
    role: Annotated[Role, typer.Option(case_sensitive=False, help="What it may do.")] = Role.OPERATOR,
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; without it never.")] = None,
    home: Home = None,
) -> None:
    """Make a token and print it. It is shown only here: the database keeps a hash."""
    from server.auth.tokens import DEFAULT_PROJECT, create_token, new_secret
    from server.clock import now
    from server.db import migrate as migrations
    from server.db.database import Database

    owner = DEFAULT_PROJECT if project is None else project
    if not name.strip() or not owner.strip():
        raise StartupProblem("a token and its project need a name")
    settings = _settings(pilotlight_home=home)
    secret = new_secret()

    async def run(url: str) -> None:
        database = Database(url)
        try:
            await migrations.check_server(url)
            await migrations.check_is_current(database)
            expires_at = None if days is None else now() + timedelta(days=days)
            async with database.write() as session:
                await create_token(session, project=owner, name=name, role=role, secret=secret, expires_at=expires_at)
        finally:
            await database.close()

    _run(_with_database(settings, run))
    typer.echo(secret)


@audit.command("export")
def audit_export(
    since: Annotated[datetime | None, typer.Option(help="From this time on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Before this time (UTC).")] = None,
    home: Home = None,
) -> None:
    """Print the audit log of all projects as JSON lines, oldest first."""
    from server.cli.audit import export

    settings = _settings(pilotlight_home=home)
    _run(_with_database(settings, lambda url: export(url, since=since, until=until)))


@provider.command("show")
def provider_show(home: Home = None) -> None:
    """Print which provider the database belongs to, and what the settings lead to."""
    from server.cli import provider as commands

    settings = _settings(pilotlight_home=home)
    _run(_with_database(settings, lambda url: commands.show(settings, url)))


@provider.command("rebind")
def provider_rebind(
    confirm: Annotated[str | None, typer.Option(help="The word for the new provider, as the refusal has it.")] = None,
    same_account: Annotated[bool, typer.Option(help="A new key or address of the same account.")] = False,
    leave_machines: Annotated[bool, typer.Option(help="Give up all machines; they stay at the former.")] = False,
    home: Home = None,
) -> None:
    """Make the database belong to the provider that the settings lead to."""
    from server.cli import provider as commands

    settings = _settings(pilotlight_home=home)
    move = commands.Move(confirm, same_account, leave_machines)
    _run(_with_database(settings, lambda url: commands.rebind(settings, url, move)))


@app.command("restored")
def restored_command(home: Home = None) -> None:
    """Run this after restoring a backup, before any process starts: compare the database with the provider."""
    from server.cli.restored import restored

    settings = _settings(pilotlight_home=home)
    _run(_with_database(settings, lambda url: restored(settings, url)))


@app.command("doctor")
def doctor_command(
    home: Home = None,
    live: Annotated[bool, typer.Option("--live", help="Settle open questions about the provider, by reading.")] = False,
) -> None:
    """Check settings, database, provider and versions, and say what is wrong."""
    from server.cli import doctor

    settings = _settings(pilotlight_home=home)
    is_well = _run(doctor.examine(settings))
    if live:
        _run(doctor.settle_questions(settings))
    if not is_well:
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(_version())


def _settings(**options: Any) -> "Settings":
    """The settings of the environment, overridden by the options of the command line."""
    import structlog

    from server.cli.console import log_only
    from server.config import Settings, misspelled
    from server.observe import logs

    settings = Settings.from_env(**{name: value for name, value in options.items() if value is not None})
    logs.configure(level=settings.log_level, format=settings.log_format)
    for name, known in misspelled().items():
        structlog.get_logger(__name__).warning("settings.unknown", name=name, did_you_mean=known)
    if settings.log_format == "json":
        log_only()
    return settings


def tune_collector() -> None:
    """For a process that has imported what it needs. That stays for its whole life: collections need not look at it.
    Measured with bench.create: a fifth of the API's CPU was spent in the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


def _run(main: Coroutine[Any, Any, Result]) -> Result:
    import uvloop

    tune_collector()
    return uvloop.run(main)


def _database_url(settings: "Settings") -> str:
    """The configured database, else the embedded one that `up` is running on this home."""
    from server.db.embedded.server import find_running

    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    running = find_running(settings.pilotlight_home)
    if running is None:
        raise StartupProblem("set DATABASE_URL, or run `pilotlight up` on this home first")
    return running.url


async def _with_database(settings: "Settings", use: Callable[[str], Awaitable[None]]) -> None:
    """Like `_database_url`, but starts the embedded server for the length of the call if it is not running."""
    from server.db import migrate as migrations
    from server.db.embedded.server import EmbeddedPostgres, find_running

    if settings.database_url is not None or find_running(settings.pilotlight_home) is not None:
        await use(settings.directly(_database_url(settings)))
        return
    async with EmbeddedPostgres(settings.pilotlight_home) as running:
        await migrations.upgrade(running.url)
        await use(running.url)


def _provider(settings: "Settings") -> "Provider":
    from server.cli.roles import Provider

    if settings.novita_api_key is None:
        raise StartupProblem(
            "set NOVITA_API_KEY (and NOVITA_API_BASE_URL to use `pilotlight simulate`, which takes any key)"
        )
    return Provider(settings.novita_api_base_url, settings.novita_api_key, is_simulated=False)
