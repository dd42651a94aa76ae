"""Mutations of the job queue: retry, cancel, pause, resume."""

from typing import Annotated
from uuid import UUID

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, MutationInput
from schema.permissions import RequiresServerAdmin, mutation
from schema.types.job import Job, JobKind, JobStats
from server.db.tables import Operation
from server.enums import OPEN_OPERATION, OperationStatus
from server.errors import Invalid, NotFound, Problem, Refused
from server.events.replay import cursor_now
from server.instances.commands.retry import RETRIED
from server.instances.queries.operations import get_operation
from server.queue import queries
from server.queue.control import cancel_job, pause_jobs, resume_jobs, retry_job, retry_jobs
from server.queue.kinds import is_cancellable

MAX_RETRIES = 1000


@strawberry.input(description="One job.")
class JobInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the job.")


@strawberry.input(description="Filter for failed jobs of the project to retry. Without conditions: all of them.")
class RetryJobsInput(MutationInput):
    kind: JobKind | None = strawberry.field(default=None, description="Job kind.")
    error_code: str | None = strawberry.field(default=None, description="Error code of the failed jobs.")
    limit: int = strawberry.field(default=MAX_RETRIES, description="Maximum number, 1 to 1000; the oldest first.")


@strawberry.input(description="A job kind.")
class JobKindInput(MutationInput):
    kind: JobKind = strawberry.field(description="The kind. OTHER is refused.")


@strawberry.type(description="The job after the change.")
class JobPayload(Payload):
    job: Job | None = strawberry.field(default=None, description="The job.")


@strawberry.type(description="The jobs to be retried.")
class RetryJobsPayload(Payload):
    jobs: list[strawberry.ID] = strawberry.field(default_factory=list[strawberry.ID], description="Ids of the jobs.")


@strawberry.type(description="The queue after the change.")
class JobKindPayload(Payload):
    changed: bool = strawberry.field(default=False, description="Whether this request changed anything.")
    stats: JobStats | None = strawberry.field(default=None, description="Statistics of the queue.")


@strawberry.type
class JobMutations:
    @mutation(
        "Retry a failed job with a fresh count of attempts. Refused if its operation has ended: use "
        "retryOperation, or request a new operation."
    )
    async def retry_job(self, info: Info, input: Annotated[JobInput, Input]) -> JobPayload:
        async with info.context.write() as session:
            job = await _own(session, info, input.id)
            operation = await _operation(session, info, job)
            if operation is not None and operation.status not in OPEN_OPERATION:
                raise Refused("OPERATION_HAS_ENDED", _instead(operation))
            if not await retry_job(session, job.id):
                raise Refused("JOB_NOT_RETRYABLE", f"Only failed jobs can be retried; this one is {job.status}.")
            return JobPayload(job=Job.of(await _own(session, info, input.id), info.context.services.seals))

    @mutation("Retry failed jobs, the oldest first. Jobs whose operation has ended are left alone.")
    async def retry_jobs(self, info: Info, input: Annotated[RetryJobsInput, Input]) -> RetryJobsPayload:
        if not 1 <= input.limit <= MAX_RETRIES:
            message = f"At most {MAX_RETRIES} jobs are retried at once."
            raise Invalid([Problem("INVALID_LIMIT", message, ("input", "limit"))])
        async with info.context.write() as session:
            job_ids = await retry_jobs(
                session,
                kind=None if input.kind is None else input.kind.value,
                error_code=input.error_code,
                project_id=info.context.caller.project_id,
                owner_id=info.context.caller.owner_id,
                limit=input.limit,
            )
        return RetryJobsPayload(jobs=[ids.format_job(info.context.services.seals, each) for each in job_ids])

    @mutation(
        "Cancel a waiting or running job. Refused for a job that carries out an open operation: use "
        "`cancelOperation`, which also removes what a create has made."
    )
    async def cancel_job(self, info: Info, input: Annotated[JobInput, Input]) -> JobPayload:
        async with info.context.write() as session:
            job = await _own(session, info, input.id)
            if not is_cancellable(job.kind):
                message = "It enforces an instance's lifetime: change that with updateInstance or extendLifetime."
                raise Refused("JOB_NOT_CANCELLABLE", message)
            if not await cancel_job(session, job.id):
                raise Refused("JOB_NOT_CANCELLABLE", f"Only open jobs can be cancelled; this one is {job.status}.")
            operation = await _operation(session, info, job)
            if operation is not None and operation.status in OPEN_OPERATION:  # which rolls the cancellation back
                operation_id = ids.format_id(ids.OPERATION, operation.id)
                raise Refused("JOB_SERVES_OPERATION", f"It carries out an operation: cancelOperation {operation_id}.")
            return JobPayload(job=Job.of(await _own(session, info, input.id), info.context.services.seals))

    @mutation(
        "Pause a job kind in all processes and across restarts; running jobs finish. Needs the role "
        "ADMIN of the project `default`.",
        RequiresServerAdmin(),
    )
    async def pause_jobs(self, info: Info, input: Annotated[JobKindInput, Input]) -> JobKindPayload:
        _check_kind(input.kind)
        async with info.context.write() as session:
            changed = await pause_jobs(session, input.kind.value)
            return JobKindPayload(changed=changed, stats=await _stats(session, info))

    @mutation("Resume a paused job kind. Needs the role ADMIN of the project `default`.", RequiresServerAdmin())
    async def resume_jobs(self, info: Info, input: Annotated[JobKindInput, Input]) -> JobKindPayload:
        _check_kind(input.kind)
        async with info.context.write() as session:
            changed = await resume_jobs(session, input.kind.value)
            return JobKindPayload(changed=changed, stats=await _stats(session, info))


async def _stats(session: AsyncSession, info: Info) -> JobStats:
    cursor = info.context.state_cursor(await cursor_now(session))
    return JobStats.of(await queries.job_stats(session), cursor)


async def _operation(session: AsyncSession, info: Info, job: queries.JobView) -> Operation | None:
    """The operation that the job carries out, if any."""
    operation_id = job.args.get("operation_id")
    if operation_id is None:
        return None
    return await get_operation(session, UUID(operation_id), by=info.context.caller)


async def _own(session: AsyncSession, info: Info, id: strawberry.ID) -> queries.JobView:
    caller = info.context.caller
    job_id = ids.parse_job(info.context.services.seals, id, ("input", "id"))
    job = await queries.get_job(session, job_id, project_id=caller.project_id, owner_id=caller.owner_id)
    if job is None:
        raise NotFound("job", ("input", "id"))
    return job


def _check_kind(kind: JobKind) -> None:
    if kind is JobKind.OTHER:
        message = "OTHER is not allowed here: it stands for kinds that this server does not know."
        raise Invalid([Problem("INVALID_JOB_KIND", message, ("input", "kind"))])


def _instead(operation: Operation) -> str:
    """What to use, since a job of an operation that has ended would do nothing."""
    ended = f"Its operation has ended: {operation.status}."
    if operation.status == OperationStatus.FAILED and operation.kind in RETRIED:
        return f"{ended} Use retryOperation with {ids.format_id(ids.OPERATION, operation.id)}."
    return f"{ended} Request a new one, or delete the instance."
