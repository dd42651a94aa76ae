"""The `pilotlight` command."""

import importlib.metadata
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

import schema as schema_package
from schema.changes import undeclared
from schema.root import schema as graphql_schema
from server import alone, doctor
from server.auth.tokens import DEFAULT_PROJECT, create_token, new_secret
from server.clock import now
from server.config import Settings
from server.db import migrate as migrations
from server.db.embedded import EmbeddedPostgres, find_running
from server.db.engine import Database
from server.errors import StartupProblem
from server.observe import logs
from server.progress import for_machines
from server.up import up as run_up
from server.words import Role

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A GraphQL control plane for GPU instances.")
tokens = typer.Typer(no_args_is_help=True, help="Tokens that callers present.")
sdl = typer.Typer(no_args_is_help=True, help="The GraphQL schema as a file.")
app.add_typer(tokens, name="token")
app.add_typer(sdl, name="schema")

Host = Annotated[str | None, typer.Option(help="Address to listen on (HOST).")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one (PORT).")]
Home = Annotated[Path | None, typer.Option(help="Folder for data (PILOTLIGHT_HOME).")]
ReadyFile = Annotated[Path | None, typer.Option(help="Written as JSON once everything answers.")]

SDL_FILE = Path(str(schema_package.__file__)).parent / "schema.graphql"
RELEASED_FILE = SDL_FILE.with_name("released.graphql")
CHANGES_FILE = SDL_FILE.parents[1] / "CHANGELOG.md"


def main() -> None:
    """Problems that a person can mend are one sentence, not a traceback."""
    try:
        app()
    except StartupProblem as problem:
        typer.echo(f"pilotlight: {problem}", err=True)
        sys.exit(1)


@app.command()
def up(host: Host = None, port: Port = None, home: Home = None, ready_file: ReadyFile = None) -> None:
    """Run everything in one process: database, simulator, API, workers."""
    _run(run_up(_settings(host=host, port=port, pilotlight_home=home), ready_file=ready_file))


@app.command()
def serve(host: Host = None, port: Port = None, home: Home = None, ready_file: ReadyFile = None) -> None:
    """Run the API alone, over a database that is migrated already."""
    settings = _settings(host=host, port=port, pilotlight_home=home)
    _run(alone.run_api(settings, _database_url(settings), _provider(settings), ready_file=ready_file))


@app.command()
def worker(home: Home = None) -> None:
    """Run the workers alone."""
    settings = _settings(pilotlight_home=home)
    _run(alone.run_worker(settings, _database_url(settings), _provider(settings)))


@app.command()
def simulate(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8001,
    speed: Annotated[float | None, typer.Option(help="How fast instances live (SIMULATOR_SPEED).")] = None,
    state_file: Annotated[Path | None, typer.Option(help="Keeps the simulated world across restarts.")] = None,
) -> None:
    """Run the simulator of the provider alone."""
    settings = _settings(simulator_speed=speed)
    _run(alone.simulate(host=host, port=port, speed=settings.simulator_speed, state_file=state_file))


@app.command()
def migrate(
    home: Home = None,
    revision: Annotated[str, typer.Option(help="Where to go; `head` is the newest.")] = "head",
    down: Annotated[bool, typer.Option("--down", help="Go down to the revision; `base` empties the database.")] = False,
) -> None:
    """Bring the database to the tables that this version knows."""
    settings = _settings(pilotlight_home=home)

    async def go(url: str) -> None:
        await migrations.check_server(url)
        await (migrations.downgrade(url, revision) if down else migrations.upgrade(url, revision))
        database = Database(url)
        typer.echo(f"the database is at revision {await migrations.current_revision(database)}")
        await database.close()

    _run(_with_database(settings, go))


@tokens.command("create")
def token_create(
    name: Annotated[str, typer.Argument(help="What it is for; shown beside everything it does.")],
    project: Annotated[str, typer.Option(help="Owns what is made with it; made if there is none.")] = DEFAULT_PROJECT,
    role: Annotated[Role, typer.Option(case_sensitive=False, help="What it may do.")] = Role.OPERATOR,
    days: Annotated[int | None, typer.Option(min=1, help="Valid for that long; without it for ever.")] = None,
    home: Home = None,
) -> None:
    """Make a token and print it. It is shown only here: the database keeps a hash."""
    if not name.strip() or not project.strip():
        raise StartupProblem("a token and its project need a name")
    settings = _settings(pilotlight_home=home)
    secret = new_secret()

    async def go(url: str) -> None:
        database = Database(url)
        try:
            await migrations.check_server(url)
            await migrations.check_is_current(database)
            expires_at = None if days is None else now() + timedelta(days=days)
            async with database.write() as session:
                await create_token(session, project=project, name=name, role=role, secret=secret, expires_at=expires_at)
        finally:
            await database.close()

    _run(_with_database(settings, go))
    typer.echo(secret)


@sdl.command("print")
def schema_print() -> None:
    """Print the schema; `pilotlight schema print > schema/schema.graphql` renews the file."""
    typer.echo(graphql_schema.as_str())


@sdl.command("check")
def schema_check(
    released: Annotated[Path, typer.Option(help="The schema of the last release.")] = RELEASED_FILE,
    changes: Annotated[Path, typer.Option(help="The list of changes, newest first.")] = CHANGES_FILE,
) -> None:
    """See whether the committed file is the schema that this code has, and breaks nobody without a word."""
    present = graphql_schema.as_str()
    if not SDL_FILE.exists() or SDL_FILE.read_text().strip() != present.strip():
        raise StartupProblem(f"{SDL_FILE.name} is not what the code has; run `make schema` and commit it")
    said = changes.read_text() if changes.exists() else ""
    broken = undeclared(released.read_text(), present, said)
    if broken:
        lines = "\n".join(f"  `{change.coordinate}`: {change.description}" for change in broken)
        raise StartupProblem(f"the schema breaks its users, and {changes.name} does not name these:\n{lines}")
    typer.echo("the schema file is fresh, and breaks nobody without a word")


@app.command("doctor")
def doctor_command(home: Home = None) -> None:
    """Check settings, database, provider and versions, and say what is wrong."""
    settings = _settings(pilotlight_home=home)
    is_well = False

    async def go() -> None:
        nonlocal is_well
        is_well = await doctor.examine(settings)

    _run(go())
    if not is_well:
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(importlib.metadata.version("pilotlight"))


def _settings(**given: Any) -> Settings:
    """The environment, with what the command line says on top."""
    settings = Settings.from_env(**{name: value for name, value in given.items() if value is not None})
    logs.configure(level=settings.log_level, format=settings.log_format)
    if settings.log_format == "json":
        for_machines()
    return settings


def _run(main: Coroutine[Any, Any, None]) -> None:
    uvloop.run(main)


def _database_url(settings: Settings) -> str:
    """The configured database, else the embedded one that `up` is running on this home."""
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    running = find_running(settings.pilotlight_home)
    if running is None:
        raise StartupProblem("set DATABASE_URL, or run `pilotlight up` on this home first")
    return running.url


async def _with_database(settings: Settings, use: Any) -> None:
    """Like `_database_url`, but starts the embedded server for a moment if nobody runs it."""
    if settings.database_url is not None or find_running(settings.pilotlight_home) is not None:
        await use(settings.directly(_database_url(settings)))
        return
    async with EmbeddedPostgres(settings.pilotlight_home) as running:
        await migrations.upgrade(running.url)
        await use(running.url)


def _provider(settings: Settings) -> alone.Provider:
    if settings.novita_api_key is None:
        raise StartupProblem(
            "set NOVITA_API_KEY (and NOVITA_API_BASE_URL to use `pilotlight simulate`, which takes any key)"
        )
    return alone.Provider(settings.novita_api_base_url, settings.novita_api_key, is_simulated=False)
