"""What operators can ask of the job queue."""

from typing import Annotated

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema import ids
from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires, RunsServer
from schema.inputs import MutationInput
from schema.types.job import Job, JobKind, JobStats
from server.errors import Invalid, NotFound, Problem, Refused
from server.events.replay import cursor_now
from server.queue import reads
from server.queue.cancel import cancel_job
from server.queue.pause import pause_jobs, resume_jobs
from server.queue.retry import retry_job, retry_jobs
from server.words import Role

MOST_AT_ONCE = 1000


@strawberry.input(description="One job.")
class JobInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")


@strawberry.input(description="Which failed jobs of the project to run again; without conditions, all of them.")
class RetryJobsInput(MutationInput):
    kind: JobKind | None = strawberry.field(default=None, description="Only of this kind.")
    error_code: str | None = strawberry.field(default=None, description="Only those that failed with this code.")
    limit: int = strawberry.field(default=MOST_AT_ONCE, description="At most so many, the oldest first; 1 to 1000.")


@strawberry.input(description="One kind of work.")
class JobKindInput(MutationInput):
    kind: JobKind = strawberry.field(description="The kind. OTHER can't be meant here.")


@strawberry.type(description="The job as it is from now on.")
class JobPayload(Payload):
    job: Job | None = strawberry.field(default=None, description="The job.")


@strawberry.type(description="The jobs that will run again.")
class RetryJobsPayload(Payload):
    jobs: list[strawberry.ID] = strawberry.field(default_factory=list[strawberry.ID], description="Their ids.")


@strawberry.type(description="The queue as it is from now on.")
class JobKindPayload(Payload):
    changed: bool = strawberry.field(default=False, description="Whether it was otherwise before.")
    stats: JobStats | None = strawberry.field(default=None, description="How the queue is doing.")


@strawberry.type
class JobMutations:
    @strawberry.mutation(
        description="Run a failed job again, with all its attempts ahead of it. An operation that has failed with it "
        "stays failed: ask for the verb again instead.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def retry_job(self, info: Info, input: Annotated[JobInput, Input]) -> JobPayload:
        async with info.context.write() as session:
            job = await _own(session, info, input.id)
            if not await retry_job(session, job.id):
                raise Refused("JOB_NOT_RETRYABLE", f"Only failed jobs can be retried; this one is {job.status}.")
            return JobPayload(job=Job.of(await _own(session, info, input.id)))

    @strawberry.mutation(
        description="Run failed jobs again, the oldest first.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def retry_jobs(self, info: Info, input: Annotated[RetryJobsInput, Input]) -> RetryJobsPayload:
        if not 1 <= input.limit <= MOST_AT_ONCE:
            message = f"At most {MOST_AT_ONCE} jobs are retried at once."
            raise Invalid([Problem("INVALID_LIMIT", message, ("input", "limit"))])
        async with info.context.write() as session:
            found = await retry_jobs(
                session,
                kind=None if input.kind is None else input.kind.value,
                error_code=input.error_code,
                project_id=info.context.caller.project_id,
                limit=input.limit,
            )
        return RetryJobsPayload(jobs=[strawberry.ID(ids.shown_number(ids.JOB, each)) for each in found])

    @strawberry.mutation(
        description="Call a job off, waiting or running. What it was for fails with the code CANCELLED.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def cancel_job(self, info: Info, input: Annotated[JobInput, Input]) -> JobPayload:
        async with info.context.write() as session:
            job = await _own(session, info, input.id)
            if not await cancel_job(session, job.id):
                raise Refused("JOB_NOT_CANCELLABLE", f"Only open jobs can be cancelled; this one is {job.status}.")
            return JobPayload(job=Job.of(await _own(session, info, input.id)))

    @strawberry.mutation(
        description="Hold a kind of work back, in all processes and across restarts; what is running finishes. "
        "Needs the role ADMIN of the project `default`.",
        extensions=[RunsServer(), RefusalsAsErrors()],
    )
    async def pause_jobs(self, info: Info, input: Annotated[JobKindInput, Input]) -> JobKindPayload:
        _check_kind(input.kind)
        async with info.context.write() as session:
            changed = await pause_jobs(session, input.kind.value)
            return JobKindPayload(changed=changed, stats=await _stats(session))

    @strawberry.mutation(
        description="Let a kind of work go again. Needs the role ADMIN of the project `default`.",
        extensions=[RunsServer(), RefusalsAsErrors()],
    )
    async def resume_jobs(self, info: Info, input: Annotated[JobKindInput, Input]) -> JobKindPayload:
        _check_kind(input.kind)
        async with info.context.write() as session:
            changed = await resume_jobs(session, input.kind.value)
            return JobKindPayload(changed=changed, stats=await _stats(session))


async def _stats(session: AsyncSession) -> JobStats:
    return JobStats.of(await reads.job_stats(session), await cursor_now(session))


async def _own(session: AsyncSession, info: Info, id: strawberry.ID) -> reads.JobView:
    job_id = ids.read_number(ids.JOB, id, ("input", "id"))
    found = await reads.get_job(session, job_id, project_id=info.context.caller.project_id)
    if found is None:
        raise NotFound("job", ("input", "id"))
    return found


def _check_kind(kind: JobKind) -> None:
    if kind is JobKind.OTHER:
        message = "Say which kind; OTHER is only a word for what this server does not know."
        raise Invalid([Problem("INVALID_JOB_KIND", message, ("input", "kind"))])
