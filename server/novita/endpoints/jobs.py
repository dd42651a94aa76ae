"""The provider's jobs: list and interrupt them, and save an image by one."""

from datetime import datetime

from server.novita.models.base import ProviderPage, id_of, page_of
from server.novita.models.job import Job
from server.novita.transport.request import ApiCalls, get, ignore_body, post


class JobCalls(ApiCalls):
    async def jobs(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        job_id: str | None = None,
        state: str | None = None,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> ProviderPage[Job]:
        """One page, counted from 1."""
        call = get(
            "/jobs",
            pageNum=page,
            pageSize=page_size,
            jobId=job_id,
            state=state,
            type=type,
            startTime=since,
            endTime=until,
        )
        return await self._transport.call(call, page_of(Job.read, "jobs"))

    async def save_image(
        self,
        novita_id: str,
        *,
        image: str,
        registry_auth_id: str | None = None,
    ) -> str:
        """Save an exited instance as an image; returns the job's id. Not retried: two jobs would push."""
        body = {"instanceId": novita_id, "image": image}
        if registry_auth_id:
            body["registryAuthId"] = registry_auth_id
        call = post("/job/save/image", body, is_repeatable=False)
        return await self._transport.call(call, id_of("jobId"))

    async def break_job(self, job_id: str) -> None:
        """Interrupt a job; a migration can't be interrupted."""
        await self._transport.call(post("/job/break", {"jobId": job_id}, is_repeatable=True), ignore_body)
