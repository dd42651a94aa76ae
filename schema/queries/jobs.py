"""Queries: job, jobs, jobStats."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.inputs import After, First, Id, Which
from schema.pagination import check_first, invalid_cursor
from schema.permissions import query
from schema.types.job import Job, JobConnection, JobEdge, JobKind, JobStats
from server.db.tables.job import JobStatus
from server.errors import NotFound
from server.events.replay import cursor_now
from server.queue import queries


@strawberry.input(
    description="Filter for jobs; all given conditions must match. Without a filter: all stored jobs of the project."
)
class JobFilter:
    kind: JobKind | None = strawberry.field(default=None, description="Job kind.")
    statuses: list[JobStatus] | None = strawberry.field(default=None, description="Any of these statuses.")
    instance_id: strawberry.ID | None = strawberry.field(default=None, description="Id of an instance.")


@strawberry.type
class JobQueries:
    @query(
        "One job of the project; null if not found. An ADMIN of the project `default` also finds the "
        "server's own jobs, such as RECONCILE."
    )
    async def job(self, info: Info, id: Id) -> Job | None:
        try:
            job_id = ids.parse_job(info.context.services.seals, id)
        except NotFound:
            return None
        view = await info.context.loaders.job.load(job_id)
        if view is None and await info.context.is_server_admin():
            async with info.context.read() as session:
                project_id = info.context.caller.project_id
                view = await queries.get_job(session, job_id, project_id=project_id, with_system_jobs=True)
        return None if view is None else Job.of(view, info.context.services.seals)

    @query(
        "Jobs of the project, newest first; for an ADMIN of the project `default` also the server's own, "
        "such as RECONCILE."
    )
    async def jobs(
        self,
        info: Info,
        filter: Annotated[JobFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> JobConnection:
        size = check_first(first)
        filter = filter or JobFilter()
        conditions = queries.JobFilter(
            kind=None if filter.kind is None else filter.kind.value,
            statuses=filter.statuses,
            project_id=info.context.caller.project_id,
            owner_id=info.context.caller.owner_id,
            with_system_jobs=await info.context.is_server_admin(),
            instance_id=None if filter.instance_id is None else ids.parse_or_unused(ids.INSTANCE, filter.instance_id),
        )
        seals = info.context.services.seals
        try:
            before = None if after is None else ids.parse_job(seals, after)
        except NotFound:
            raise invalid_cursor() from None
        async with info.context.read_from_replica_if_fresh() as session:
            jobs = await queries.page_of_jobs(session, conditions, limit=size + 1, before_id=before)
        nodes = [Job.of(job, seals) for job in jobs]
        return JobConnection.of(nodes, lambda job: JobEdge(cursor=job.id, node=job), first=size, after=after)

    @query("Queue statistics: of the project's jobs, or of all jobs for an ADMIN of the project `default`.")
    async def job_stats(self, info: Info) -> JobStats:
        caller = info.context.caller
        async with info.context.read() as session:
            scope = None if await info.context.is_server_admin() else caller.project_id
            return JobStats.of(
                await queries.job_stats(session, project_id=scope, owner_id=caller.owner_id),
                info.context.state_cursor(await cursor_now(session)),
            )
