"""After a backup was restored: a new log identity, and all machines compared before anything is created."""

import typer
from sqlalchemy import text

from server.clock import now
from server.config import Settings
from server.db import migrate
from server.db.database import Database
from server.errors import NovitaError, StartupProblem
from server.events.log_identity import start_epoch_after_restore
from server.instances.provider.reconcile import reconcile
from server.instances.provider.snapshot import snapshots
from server.instances.provider.unlinked import Origin, unlinked_machines
from server.novita.client import NovitaClient
from server.provider import identity

WORKERS = text("SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()")


async def restored(settings: Settings, database_url: str) -> None:
    """Mark the database as restored, then compare it with the provider. May be repeated after an error."""
    async with migrate.open_current(database_url) as database:
        await mark_restored(database)
        typer.echo("cursors of before are refused; creates of before look for their machine first")
        if settings.novita_api_key is None:
            typer.echo("no NOVITA_API_KEY is set: the next start compares the machines")
            return
        async with NovitaClient(
            base_url=settings.novita_api_base_url,
            api_key=settings.novita_api_key,
            request_timeout=settings.request_timeout,
            rate_limit_per_minute=settings.novita_rate_limit,
        ) as novita:
            await compare(settings, database, novita)


async def mark_restored(database: Database) -> None:
    async with database.write() as session:
        workers = (await session.execute(WORKERS)).scalar_one()
        if workers:
            raise StartupProblem(f"{workers} workers are running; stop all processes of Pilotlight first")
        await start_epoch_after_restore(session)


async def compare(settings: Settings, database: Database, novita: NovitaClient) -> None:
    """Bring all rows to the provider's state, and list the machines whose rows are lost."""
    try:
        await _refuse_another(settings, database, novita)
        report = await reconcile(database, novita)
        listed = snapshots(await novita.all_instances(), asked_at=now())
    except NovitaError as error:
        raise StartupProblem(
            f"{settings.novita_api_base_url}: {error.message} ({error.code}); run `pilotlight restored` again"
        ) from None
    typer.echo(f"{report.compared} instances were compared with {len(listed)} machines")
    for machine in await unlinked_machines(database, listed):
        if machine.origin is Origin.LOST:
            snapshot = machine.snapshot
            shown = f"machine {snapshot.id} ({snapshot.name}, {snapshot.status})"
            typer.echo(f"{shown} has no instance: adopt or delete it")


async def _refuse_another(settings: Settings, database: Database, novita: NovitaClient) -> None:
    """A comparison with another account would call every machine gone."""
    async with database.read() as session:
        row = await identity.read_identity(session)
    key = settings.novita_api_key
    if row is None or key is None:
        return
    if row.world_id != await novita.read_world_id() or not identity.knows_key(row, key):
        raise StartupProblem(
            f"the database belongs to {identity.describe(row)}; set its key, or run `pilotlight provider rebind` first"
        )
