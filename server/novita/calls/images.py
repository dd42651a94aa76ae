"""Background jobs, saved images, images fetched ahead of time, and metrics."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from server.novita.call import METRICS_PREFIX, get, post
from server.novita.calls.base import Calls, nothing
from server.novita.fields import Fields
from server.novita.priority import Priority
from server.novita.wire.images import Job, Prewarm, PrewarmQuota
from server.novita.wire.metrics import InstanceMetrics
from server.novita.wire.page import Page


class ImageCalls(Calls):
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
        priority: Priority = Priority.USER,
    ) -> Page[Job]:
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
        return await self._caller.call(call, _jobs, priority=priority)

    async def save_image(
        self,
        novita_id: str,
        *,
        image: str,
        registry_auth_id: str | None = None,
        priority: Priority = Priority.USER,
    ) -> str:
        """Save an exited instance as an image; returns the job's id. Not repeated on failure: two jobs would push."""
        body = {"instanceId": novita_id, "image": image}
        if registry_auth_id:
            body["registryAuthId"] = registry_auth_id
        call = post("/job/save/image", body, is_repeatable=False)
        return await self._caller.call(call, _job_id, priority=priority)

    async def break_job(self, job_id: str, *, priority: Priority = Priority.USER) -> None:
        """Interrupt a job; a migration can't be."""
        await self._caller.call(post("/job/break", {"jobId": job_id}, is_repeatable=True), nothing, priority=priority)

    async def prewarm_quota(self, *, priority: Priority = Priority.USER) -> PrewarmQuota:
        return await self._caller.call(get("/image/prewarm/quota"), PrewarmQuota.read, priority=priority)

    async def prewarms(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        state: str | None = None,
        cluster_id: str | None = None,
        name: str | None = None,
        priority: Priority = Priority.USER,
    ) -> Page[Prewarm]:
        """One page, counted from 1; this call alone names the page just page."""
        call = get("/image/prewarm", page=page, pageSize=page_size, state=state, clusterId=cluster_id, name=name)
        return await self._caller.call(call, _prewarms, priority=priority)

    async def prewarm(
        self,
        *,
        image: str,
        cluster_id: str,
        product_ids: Sequence[str],
        registry_auth_id: str | None = None,
        note: str | None = None,
        priority: Priority = Priority.USER,
    ) -> str:
        """Have an image fetched to a region's nodes; returns the task's id. Not repeated on failure: it has a quota."""
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
        return await self._caller.call(call, _id, priority=priority)

    async def edit_prewarm(self, prewarm_id: str, *, note: str, priority: Priority = Priority.USER) -> None:
        call = post("/image/prewarm/edit", {"id": prewarm_id, "note": note}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)

    async def delete_prewarms(self, prewarm_ids: Sequence[str], *, priority: Priority = Priority.USER) -> None:
        call = post("/image/prewarm/delete", {"ids": list(prewarm_ids)}, is_repeatable=True)
        await self._caller.call(call, nothing, priority=priority)

    async def metrics(
        self,
        novita_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        interval: timedelta | None = None,
        priority: Priority = Priority.POLL,
    ) -> InstanceMetrics:
        """About a minute behind; without times the last minute. An interval has to be longer than 15 s."""
        call = get(
            "/gpu/instance",
            prefix=METRICS_PREFIX,
            instanceId=novita_id,
            startTime=_seconds(since),
            endTime=_seconds(until),
            interval=None if interval is None else int(interval.total_seconds()),
        )
        return await self._caller.call(call, InstanceMetrics.read, priority=priority)


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def _jobs(raw: Fields) -> Page[Job]:
    return Page(tuple(Job.read(item) for item in raw.listed("jobs")), raw.integer("total"))


def _job_id(raw: Fields) -> str:
    return raw.identity("jobId")


def _id(raw: Fields) -> str:
    return raw.identity("id")


def _prewarms(raw: Fields) -> Page[Prewarm]:
    return Page(tuple(Prewarm.read(item) for item in raw.listed("data")), raw.integer("total"))
