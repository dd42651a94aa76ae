"""The provider's jobs of a project's machines: read them, and interrupt one that saves an image."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from server.account.objects import Account, refuse
from server.auth.caller import Caller
from server.db.tables import Instance
from server.errors import InvalidStateChange, NotFound, NovitaError, ProviderNotFound, Refused
from server.instances.provider.provider_jobs import read_job, read_jobs
from server.novita.models import Job

__all__ = ["Job", "OwnedJob", "cancel_job", "find_job", "jobs_of_project"]

PATH = ("input", "id")
ENDED = ("success", "fail", "break")


@dataclass(frozen=True, slots=True)
class OwnedJob:
    """A job, and the instance whose machine it is about."""

    job: Job
    instance_id: UUID


async def jobs_of_project(account: Account, *, by: Caller, instance_id: UUID | None = None) -> list[OwnedJob]:
    """Newest first, read now; jobs of machines that the project has or had. Raises NovitaError."""
    account.live_reads.take(by)
    owned = await _owned(account, await read_jobs(account.novita), by=by)
    return [each for each in owned if instance_id in (None, each.instance_id)]


async def find_job(account: Account, job_id: str, *, by: Caller) -> OwnedJob | None:
    """Read now. Raises NovitaError."""
    account.live_reads.take(by)
    job = await read_job(account.novita, job_id)
    return next(iter(await _owned(account, [] if job is None else [job], by=by)), None)


async def cancel_job(account: Account, job_id: str, *, by: Caller) -> OwnedJob:
    """Interrupt a job; the operation that follows it then fails with IMAGE_SAVE_INTERRUPTED."""
    found = await find_job(account, job_id, by=by)
    if found is None:
        raise NotFound("provider job", PATH)
    if found.job.state in ENDED:
        raise Refused("PROVIDER_JOB_ENDED", f"It has ended: {found.job.state}.", PATH)
    if account.is_dry_run:
        return found
    try:
        await account.novita.break_job(job_id)
    except ProviderNotFound:
        raise NotFound("provider job", PATH) from None
    except InvalidStateChange as error:
        raise Refused("PROVIDER_JOB_ENDED", f"The provider refused it: {error.message}", PATH) from error
    except NovitaError as error:
        refuse(error)
    return await find_job(account, job_id, by=by) or found


async def _owned(account: Account, jobs: list[Job], *, by: Caller) -> list[OwnedJob]:
    machines = {job.instance_id for job in jobs if job.instance_id is not None}
    if not machines:
        return []
    async with account.database.read() as session:
        found = select(Instance.novita_id, Instance.id).where(
            Instance.project_id == by.project_id, Instance.novita_id.in_(machines)
        )
        if by.owner_id is not None:
            found = found.where(Instance.owner_token_id == by.owner_id)
        rows = await session.execute(found.order_by(Instance.created_at))
        instances = {row.novita_id: row.id for row in rows}
    return [OwnedJob(job, instances[job.instance_id]) for job in jobs if job.instance_id in instances]
