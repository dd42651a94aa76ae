"""Checks everything that a running Pilotlight needs, and prints what is wrong."""

import importlib
import importlib.metadata
import platform
from collections.abc import Awaitable, Callable

import typer

from server.cli.provider import find
from server.config import Settings
from server.db import migrate
from server.db.embedded.server import find_running
from server.db.hosts import redacted
from server.encryption import Cipher
from server.errors import NovitaError, StartupProblem
from server.instances.env import count_stored
from server.novita.client import NovitaClient
from server.novita.transport.retry import RetryPolicy
from server.observe.tracing import MISSING_PACKAGES
from server.provider.identity import describe, knows_key, read_identity
from server.provider.questions import ask_all, store_answers
from server.simulator.journal import STATE_FILE
from server.webhooks.signing import find_key, projects_with_a_previous_key, projects_with_another_key

# A check returns its finding, or raises StartupProblem with what is wrong.
Check = Callable[[Settings], Awaitable[str]]

LIBRARIES = ("strawberry-graphql", "starlette", "uvicorn", "aiohttp", "sqlalchemy", "asyncpg")


async def examine(settings: Settings) -> bool:
    """Run all checks in order; True if none failed."""
    is_well = True
    checks: dict[str, Check] = {
        "versions": _versions,
        "settings": _settings,
        "database": _database,
        "tables": _tables,
        "webhooks": _webhooks,
        "encryption": _encryption,
        "traces": _traces,
        "provider": _provider,
        "identity": _identity,
    }
    for name, check in checks.items():
        try:
            finding = await check(settings)
        except StartupProblem as problem:
            is_well = False
            typer.echo(f"  ✗ {name:10} {problem}")
        else:
            typer.echo(f"  ✓ {name:10} {finding}")
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
    return redacted(url)


async def _tables(settings: Settings) -> str:
    url = _url(settings)
    if url is None:
        return "made by `pilotlight up`"
    async with migrate.open_current(settings.directly(url)):
        pass
    return f"at revision {migrate.known_head()}"


async def _webhooks(settings: Settings) -> str:
    """Check that the signing key of this machine is the one that the projects' secrets were made with."""
    url = _url(settings)
    if url is None:
        return "the signing key is made by `pilotlight up`"
    key = find_key(settings.webhook_signing_key, settings.pilotlight_home)
    async with migrate.open_current(url) as database, database.read() as session:
        wrong = await projects_with_another_key(session, key)
        previous = 0 if key is None else await projects_with_a_previous_key(session, key)
    if wrong:
        difference = "is not set" if key is None else "is another one"
        raise StartupProblem(
            f"WEBHOOK_SIGNING_KEY {difference}: the secrets of {wrong} projects can't sign, and their deliveries wait; "
            "set the one that they were made with, or let them call rotateWebhookSecret"
        )
    if previous:
        return f"the signing key fits all secrets; {previous} projects still need a previous key"
    return "no signing key, and no project that needs one yet" if key is None else "the signing key fits all secrets"


async def _encryption(settings: Settings) -> str:
    """Check that every stored value can be decrypted, and whether all are stored with the first key."""
    url = _url(settings)
    if url is None:
        return "nothing is stored yet"
    async with migrate.open_current(url) as database, database.read() as session:
        counts = await count_stored(session, Cipher.of(settings.encryption_key))
    if counts.unreadable:
        raise StartupProblem(
            f"ENCRYPTION_KEY lacks the key of the variables of {counts.unreadable} instances: add it behind the first"
        )
    if counts.outdated:
        return f"the variables of {counts.outdated} instances are not stored with the first key: `pilotlight encrypt`"
    is_set = settings.encryption_key is not None
    return "all variables are stored with the first key" if is_set else "no ENCRYPTION_KEY: variables are in clear"


async def _traces(settings: Settings) -> str:
    if settings.otel_exporter_otlp_endpoint is None:
        return "none are made: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
    try:
        importlib.import_module("server.observe.otel")
    except ImportError:
        raise StartupProblem(MISSING_PACKAGES) from None
    return f"sent to {settings.otel_exporter_otlp_endpoint}"


async def _provider(settings: Settings) -> str:
    if settings.novita_api_key is None:
        return "no NOVITA_API_KEY: `pilotlight up` runs the simulator, nothing real is created"
    async with NovitaClient(
        base_url=settings.novita_api_base_url,
        api_key=settings.novita_api_key,
        request_timeout=settings.request_timeout,
        retry=RetryPolicy(attempts=1),
    ) as novita:
        found: list[str] = []
        calls: dict[str, Callable[[], Awaitable[str]]] = {
            "regions": lambda: _regions(novita),
            "list": lambda: _list(novita),
            "balance": lambda: _balance(novita),
        }
        for name, call in calls.items():
            try:
                found.append(await call())
            except NovitaError as error:
                url = settings.novita_api_base_url
                raise StartupProblem(f"{url}: {name}: {error.message} ({error.code})") from None
    return f"{settings.novita_api_base_url} answers with {', '.join(found)}"


async def _regions(novita: NovitaClient) -> str:
    return f"{len(await novita.clusters())} regions"


async def _list(novita: NovitaClient) -> str:
    page = await novita.instances(page_size=1)
    return f"{len(page.items) if page.total is None else page.total} instances"


async def _balance(novita: NovitaClient) -> str:
    balance = await novita.balance()
    if balance.available_e4 <= 0:
        raise StartupProblem(f"the account's balance is {balance}: the provider will refuse creates and starts")
    return f"a balance of {balance}"


async def settle_questions(settings: Settings) -> None:
    """Settle the open questions about the provider by reading, and store the answers with the database's provider."""
    if settings.novita_api_key is None:
        raise StartupProblem("--live needs NOVITA_API_KEY")
    found = await find(settings)
    async with NovitaClient(
        base_url=settings.novita_api_base_url,
        api_key=settings.novita_api_key,
        request_timeout=settings.request_timeout,
        rate_limit_per_minute=settings.novita_rate_limit,
    ) as novita:
        answers = await ask_all(novita)
    for question, answer in answers.items():
        typer.echo(f"  ? {question:10} {answer}")
    url = _url(settings)
    if url is None:
        return
    async with migrate.open_current(settings.directly(url)) as database, database.write() as session:
        row = await read_identity(session)
        is_bound = row is not None and row.world_id == found.world_id and knows_key(row, found.key)
        if is_bound:
            await store_answers(session, answers)
    typer.echo("  the answers are stored" if is_bound else "  not stored: the database is not bound to this provider")


async def _identity(settings: Settings) -> str:
    """Check that the settings lead to the provider that the database belongs to."""
    url = _url(settings)
    if url is None:
        return "the database is bound to its provider by `pilotlight up`"
    async with migrate.open_current(settings.directly(url)) as database, database.read() as session:
        row = await read_identity(session)
    if settings.novita_api_key is None and not (settings.pilotlight_home / STATE_FILE).exists():
        return "no process was started here yet" if row is None else f"the database belongs to {describe(row)}"
    found = await find(settings)
    if row is None:
        return f"the database is bound at the first start, to {found}"
    if row.world_id != found.world_id or (found.world_id is None and row.base_url != found.base_url):
        raise StartupProblem(f"the database belongs to {describe(row)}, but the settings lead to {found}")
    is_new_key = found.world_id is None and not knows_key(row, found.key)
    return f"the database belongs to {describe(row)}" + (", which has not met this key yet" if is_new_key else "")


def _url(settings: Settings) -> str | None:
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    running = find_running(settings.pilotlight_home)
    return None if running is None else running.url
