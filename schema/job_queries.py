"""What operators can read about the job queue."""

from typing import Annotated

import strawberry

from schema import ids
from schema.arguments import After, First, Id, Which
from schema.context import Info
from schema.guards import Requires
from schema.paging import check_first, number_cursor, read_number_cursor
from schema.types.job import Job, JobConnection, JobEdge, JobKind, JobStats
from schema.types.page import PageInfo
from server.db.tables.job import JobStatus
from server.errors import NotFound
from server.events.replay import cursor_now
from server.queue import reads
from server.words import Role


@strawberry.input(description="Which jobs; without it, all of the project's that are kept.")
class JobFilter:
    kind: JobKind | None = strawberry.field(default=None, description="Only of this kind.")
    statuses: list[JobStatus] | None = strawberry.field(default=None, description="Only in one of these statuses.")
    instance_id: strawberry.ID | None = strawberry.field(default=None, description="Only about this instance.")


@strawberry.type
class JobQueries:
    @strawberry.field(
        description="One job of the project; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def job(self, info: Info, id: Id) -> Job | None:
        try:
            job_id = ids.read_number(ids.JOB, id)
        except NotFound:
            return None
        async with info.context.read() as session:
            found = await reads.get_job(session, job_id, project_id=info.context.caller.project_id)
        return None if found is None else Job.of(found)

    @strawberry.field(description="Jobs of the project, newest first.", extensions=[Requires(Role.READER)])
    async def jobs(
        self,
        info: Info,
        filter: Annotated[JobFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> JobConnection:
        size = check_first(first)
        wanted = filter or JobFilter()
        try:
            instance_id = None if wanted.instance_id is None else ids.read(ids.INSTANCE, wanted.instance_id)
        except NotFound:
            instance_id = ids.NOBODY
        which = reads.JobFilter(
            kind=None if wanted.kind is None else wanted.kind.value,
            statuses=wanted.statuses,
            project_id=info.context.caller.project_id,
            instance_id=instance_id,
        )
        before = None if after is None else read_number_cursor(after)
        async with info.context.read_widely() as session:
            found = await reads.page_of_jobs(session, which, limit=size + 1, before_id=before)
        edges = [JobEdge(cursor=number_cursor(each.id), node=Job.of(each)) for each in found[:size]]
        return JobConnection(
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(found) > size, after=after),
        )

    @strawberry.field(
        description="How the queue is doing: the project's jobs, or all there are for an ADMIN of the project "
        "`default`.",
        extensions=[Requires(Role.READER)],
    )
    async def job_stats(self, info: Info) -> JobStats:
        caller = info.context.caller
        async with info.context.read() as session:
            scope = None if await info.context.runs_the_server() else caller.project_id
            return JobStats.of(await reads.job_stats(session, project_id=scope), await cursor_now(session))
