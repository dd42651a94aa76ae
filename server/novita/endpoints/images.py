"""The provider's jobs, saved images, image prewarming and metrics."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from server.novita.models.base import ProviderPage, id_of, page_of
from server.novita.models.images import InstanceMetrics, Job, Prewarm, PrewarmQuota
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.request import METRICS_PREFIX, ApiCalls, get, ignore_body, post


class ImageCalls(ApiCalls):
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
            startTime=_seconds(since),
            endTime=_seconds(until),
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

    async def prewarm_quota(self) -> PrewarmQuota:
        return await self._transport.call(get("/image/prewarm/quota"), PrewarmQuota.read)

    async def prewarms(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        state: str | None = None,
        cluster_id: str | None = None,
        name: str | None = None,
    ) -> ProviderPage[Prewarm]:
        """One page, counted from 1; only this call names the parameter `page`."""
        call = get("/image/prewarm", page=page, pageSize=page_size, state=state, clusterId=cluster_id, name=name)
        return await self._transport.call(call, page_of(Prewarm.read, "data"))

    async def prewarm(
        self,
        *,
        image: str,
        cluster_id: str,
        product_ids: Sequence[str],
        registry_auth_id: str | None = None,
        note: str | None = None,
    ) -> str:
        """Fetch an image to a region's nodes; returns the task's id. Not retried: there is a quota."""
        body = {
            "imageUrl": image,
            "clusterId": cluster_id,
            "productIds": list(product_ids),
            "repositoryAuth": registry_auth_id,
            "note": note,
        }
        call = post(
            "/image/prewarm", {name: value for name, value in body.items() if value is not None}, is_repeatable=False
        )
        return await self._transport.call(call, id_of("id"))

    async def edit_prewarm(self, prewarm_id: str, *, note: str) -> None:
        call = post("/image/prewarm/edit", {"id": prewarm_id, "note": note}, is_repeatable=True)
        await self._transport.call(call, ignore_body)

    async def delete_prewarms(self, prewarm_ids: Sequence[str]) -> None:
        call = post("/image/prewarm/delete", {"ids": list(prewarm_ids)}, is_repeatable=True)
        await self._transport.call(call, ignore_body)

    async def metrics(
        self,
        novita_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        interval: timedelta | None = None,
        priority: CallPriority = CallPriority.POLL,
    ) -> InstanceMetrics:
        """About a minute late; by default the last minute. The interval must be longer than 15 s."""
        call = get(
            "/gpu/instance",
            prefix=METRICS_PREFIX,
            instanceId=novita_id,
            startTime=_seconds(since),
            endTime=_seconds(until),
            interval=None if interval is None else int(interval.total_seconds()),
        )
        return await self._transport.call(call, InstanceMetrics.read, priority=priority)


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
