"""Shows which provider the database belongs to, and moves it to another on purpose."""

from dataclasses import dataclass

import typer
from pydantic import SecretStr
from sqlalchemy import text

from server.config import Settings
from server.db import migrate
from server.errors import NovitaError, StartupProblem
from server.instances.commands.leave_machines import leave_machines
from server.novita.client import NovitaClient
from server.novita.transport.retry import RetryPolicy
from server.provider import identity
from server.provider.identity import FoundProvider
from server.simulator.journal import STATE_FILE, read_world_id
from server.simulator.server import DEFAULT_API_KEY

AT_STAKE = text("""
    SELECT (SELECT count(*) FROM instance WHERE status <> 'DELETED') AS instances,
           (SELECT count(*) FROM operation WHERE finished_at IS NULL) AS operations,
           (SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()) AS workers
""")


@dataclass(frozen=True, slots=True)
class Move:
    """What the operator said about the new provider."""

    confirmation: str | None
    is_same_account: bool = False
    leaves_machines: bool = False


async def show(settings: Settings, database_url: str) -> None:
    """Print the row, and what the settings lead to."""
    async with migrate.open_current(database_url) as database, database.read() as session:
        row = await identity.read_identity(session)
    if row is None:
        typer.echo("the database belongs to no provider yet; the next start binds it")
    else:
        typer.echo(f"the database belongs to {identity.describe(row)}, since {row.bound_at:%Y-%m-%d %H:%M} UTC")
        for question, answer in (row.answers or {}).items():
            typer.echo(f"  {question}: {answer}")
    try:
        typer.echo(f"the settings lead to {await find(settings)}")
    except StartupProblem as problem:
        typer.echo(str(problem))


async def rebind(settings: Settings, database_url: str, move: Move) -> None:
    """Make the database belong to what the settings lead to."""
    found = await find(settings)
    if move.confirmation != found.confirmation():
        raise StartupProblem(f"the settings lead to {found}; confirm that with --confirm {found.confirmation()}")
    async with migrate.open_current(database_url) as database, database.write() as session:
        row = await identity.read_identity(session)
        at_stake = (await session.execute(AT_STAKE)).one()
        if at_stake.workers:
            raise StartupProblem(f"{at_stake.workers} workers are running; stop all processes of Pilotlight first")
        if row is None:
            await identity.rebind(session, found)
        elif move.is_same_account:
            if row.world_id != found.world_id:
                raise StartupProblem(f"{found} and {identity.describe(row)} can't be the same account")
            await identity.remember_settings(session, row, found)
        else:
            if at_stake.instances and not move.leaves_machines:
                raise StartupProblem(
                    f"{at_stake.instances} instances and {at_stake.operations} open operations belong to "
                    f"{identity.describe(row)}; add --same-account if the new key is of that account, or "
                    "--leave-machines to give them up: their machines stay there, and are billed until they are "
                    "deleted there"
                )
            left = await leave_machines(session, former=identity.describe(row))
            await identity.rebind(session, found)
            if left:
                typer.echo(f"{left} instances are FAILED now; their machines stay at {identity.describe(row)}")
    typer.echo(f"the database belongs to {found} now")


async def find(settings: Settings) -> FoundProvider:
    """What the settings lead to; raises StartupProblem if it can't be reached or refuses the key."""
    url, key = settings.novita_api_base_url, settings.novita_api_key
    if key is None:
        # Read, not asked: it runs only inside `up`, at an address that changes.
        world_id = read_world_id(settings.pilotlight_home / STATE_FILE)
        if world_id is None:
            raise StartupProblem("no NOVITA_API_KEY is set, and this home has no simulator yet")
        return FoundProvider("http://127.0.0.1", SecretStr(DEFAULT_API_KEY), world_id)
    async with NovitaClient(
        base_url=url,
        api_key=key,
        request_timeout=settings.request_timeout,
        retry=RetryPolicy(attempts=1),
    ) as novita:
        try:
            return FoundProvider(url, key, await novita.read_world_id())
        except NovitaError as error:
            raise StartupProblem(f"{url}: {error.message} ({error.code})") from None
