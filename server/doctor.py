"""Looking at everything that a running Pilotlight needs, and saying what is wrong in words."""

import importlib
import importlib.metadata
import platform
from collections.abc import Awaitable, Callable

import typer

from server.config import Settings
from server.db import migrate
from server.db.embedded import find_running
from server.db.engine import Database
from server.db.url import shown
from server.errors import NovitaError, StartupProblem
from server.novita.client import NovitaClient
from server.novita.retry import Retry
from server.observe.traces import NEEDS
from server.webhooks.key import find_key
from server.webhooks.secrets import projects_with_another_key

# A look answers what it found; it raises StartupProblem with what is wrong.
Look = Callable[[Settings], Awaitable[str]]

LIBRARIES = ("strawberry-graphql", "starlette", "uvicorn", "aiohttp", "sqlalchemy", "asyncpg")


async def examine(settings: Settings) -> bool:
    """Look at everything, in order; True if all is well."""
    is_well = True
    looks: dict[str, Look] = {
        "versions": _versions,
        "settings": _settings,
        "database": _database,
        "tables": _tables,
        "webhooks": _webhooks,
        "traces": _traces,
        "provider": _provider,
    }
    for name, look in looks.items():
        try:
            found = await look(settings)
        except StartupProblem as problem:
            is_well = False
            typer.echo(f"  ✗ {name:10} {problem}")
        else:
            typer.echo(f"  ✓ {name:10} {found}")
    return is_well


async def _versions(_settings: Settings) -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return f"pilotlight {importlib.metadata.version('pilotlight')}, Python {platform.python_version()}, {versions}"


async def _settings(settings: Settings) -> str:
    changed = sorted(name.upper() for name in settings.model_fields_set)
    return f"set: {', '.join(changed)}" if changed else "all at their defaults"


async def _database(settings: Settings) -> str:
    url = _url(settings)
    if url is None:
        return "embedded; it will be started by `pilotlight up`"
    await migrate.check_server(url)
    return shown(url)


async def _tables(settings: Settings) -> str:
    url = _url(settings)
    if url is None:
        return "made by `pilotlight up`"
    url = settings.directly(url)
    await migrate.check_server(url)
    database = Database(url)
    try:
        await migrate.check_is_current(database)
    finally:
        await database.close()
    return f"at revision {migrate.known_head()}"


async def _webhooks(settings: Settings) -> str:
    """Whether the key of this machine is the one that receivers know the secrets of."""
    url = _url(settings)
    if url is None:
        return "the signing key is made by `pilotlight up`"
    key = find_key(settings.webhook_signing_key, settings.pilotlight_home)
    await migrate.check_server(url)
    database = Database(url)
    try:
        await migrate.check_is_current(database)
        async with database.read() as session:
            wrong = await projects_with_another_key(session, key)
    finally:
        await database.close()
    if wrong:
        is_what = "is not set" if key is None else "is another one"
        raise StartupProblem(
            f"WEBHOOK_SIGNING_KEY {is_what}: the secrets of {wrong} projects can't sign, and their deliveries wait; "
            "set the one that they were made with, or let them call rotateWebhookSecret"
        )
    return "no signing key, and no project that needs one yet" if key is None else "the signing key fits all secrets"


async def _traces(settings: Settings) -> str:
    if settings.otel_exporter_otlp_endpoint is None:
        return "none are made: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
    try:
        importlib.import_module("server.observe.otel")
    except ImportError:
        raise StartupProblem(NEEDS) from None
    return f"sent to {settings.otel_exporter_otlp_endpoint}"


async def _provider(settings: Settings) -> str:
    if settings.novita_api_key is None:
        return "no NOVITA_API_KEY: `pilotlight up` runs the simulator, nothing real is created"
    async with NovitaClient(
        base_url=settings.novita_api_base_url,
        api_key=settings.novita_api_key,
        request_timeout=settings.request_timeout,
        retry=Retry(attempts=1),
    ) as novita:
        try:
            clusters = await novita.clusters()
        except NovitaError as error:
            raise StartupProblem(f"{settings.novita_api_base_url}: {error.message} ({error.code})") from None
    return f"{settings.novita_api_base_url} answers with {len(clusters)} regions"


def _url(settings: Settings) -> str | None:
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    running = find_running(settings.pilotlight_home)
    return None if running is None else running.url
