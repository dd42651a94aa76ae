"""Reads the provider's own jobs of machines: saved images and migrations."""

from datetime import datetime
from typing import Any

from server.novita.client import NovitaClient
from server.novita.models import Job

SAVE_IMAGE = "saveImage"
PAGE = 100
PAGES_MAX = 50


async def read_jobs(novita: NovitaClient, *, since: datetime | None = None, **filter: Any) -> list[Job]:
    """All jobs, newest first, each once. Raises NovitaError."""
    found: dict[str, Job] = {}
    for number in range(1, PAGES_MAX + 1):
        page = await novita.jobs(page=number, page_size=PAGE, since=since, **filter)
        before = len(found)
        found.update((job.id, job) for job in page.items)
        if len(page.items) < PAGE or len(found) == before:
            break
    return sorted(found.values(), key=_age, reverse=True)


async def read_job(novita: NovitaClient, job_id: str) -> Job | None:
    """One job; None if it is not listed. Raises NovitaError."""
    page = await novita.jobs(job_id=job_id)
    return next((job for job in page.items if job.id == job_id), None)


def _age(job: Job) -> tuple[float, str]:
    return (0.0 if job.created_at is None else job.created_at.timestamp(), job.id)
