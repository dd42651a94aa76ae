"""Sets the time of an instance's next step beside every change of its row, and keeps the job that takes it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance
from server.enums import InstanceStatus
from server.instances.limits.steps import COLUMNS, Part, State, View, next_step, part_of, wake_at
from server.queue.control import KeptJob, keep_job
from server.queue.kinds import EndLifetime

NOT_ARMED: dict[str, Any] = {"lifetime_due_at": None, "lifetime_action": None, "lifetime_reason": None}


def armed(row: Any, values: Mapping[str, Any], *, at: datetime) -> dict[str, Any]:
    """The columns to write with `values` into the row, so that its next step is the right one."""
    new = View(**{name: values.get(name, getattr(row, name)) for name in COLUMNS})
    fields = _run(row, new, at=at)
    if new.lifetime is None:
        return fields if row.lifetime is None else fields | NOT_ARMED | {"lifetime_state": None}
    if ("lifetime" in values and "lifetime_state" not in values) or _is_another_part(row.status, new.status):
        # The limits count from here: other limits, or another part of its life.
        new.lifetime_state = fields["lifetime_state"] = State(None).with_values(since=at)
    step = next_step(new)
    due: dict[str, Any] = NOT_ARMED
    if step is not None:
        due = {"lifetime_due_at": step.at, "lifetime_action": step.action, "lifetime_reason": step.reason}
    return fields | {name: value for name, value in due.items() if getattr(row, name) != value}


def armed_new(values: Mapping[str, Any], *, at: datetime) -> dict[str, Any]:
    """The same for a row that is inserted."""
    if values.get("lifetime") is None:
        return {}
    return armed(Instance(), {"status": InstanceStatus.CREATING, "status_since": at, **values}, at=at)


def _run(row: Any, new: View, *, at: datetime) -> dict[str, Any]:
    """When the provider accepted this run: at its create or start, at the latest when it is seen running."""
    if part_of(new.status) is Part.STOPPED:
        new.run_accepted_at = None
    elif new.run_accepted_at is None and _shows_run(row.status, new.status):
        # A row that an older process has written shows no acceptance.
        new.run_accepted_at = (row.running_at if row.status == new.status else None) or at
    return {} if new.run_accepted_at == row.run_accepted_at else {"run_accepted_at": new.run_accepted_at}


def _is_another_part(before: str | None, status: str) -> bool:
    """A delete that fails does not begin another part: its next attempt has to wait."""
    parts = {Part.RUNNING if before is None else part_of(before), part_of(status)}
    return len(parts) == 2 and Part.OVER not in parts


def _shows_run(before: str | None, status: str) -> bool:
    if status == InstanceStatus.STARTING:
        return before == InstanceStatus.CREATING
    return status in (InstanceStatus.RUNNING, InstanceStatus.READY)


def job_key(instance_id: UUID) -> str:
    return f"lifetime {instance_id}"


def timed_job(instance: Instance) -> dict[str, Any]:
    """The columns that the job of a new instance has besides those of every job."""
    at = wake_at(instance) or instance.lifetime_due_at
    return {"unique_key": job_key(instance.id), "at": at, "project_id": instance.project_id}


def kept_job(instance: Instance) -> KeptJob | None:
    """The job of the next step of a locked row whose job runs now and has released its key; None without a step."""
    at = None if instance.lifetime_due_at is None else wake_at(instance)
    if at is None:
        return None
    return KeptJob(EndLifetime(instance.id), job_key(instance.id), at, instance.project_id, instance.id)


async def keep(session: AsyncSession, instance: Instance, *, at: datetime | None = None) -> None:
    """Let the instance's one job run at the given time, or at the next that matters; remove it if there is no step."""
    when = at
    if when is None and instance.lifetime_due_at is not None:
        when = wake_at(instance)
    await keep_job(
        session,
        EndLifetime(instance.id),
        unique_key=job_key(instance.id),
        at=when,
        project_id=instance.project_id,
        instance_id=instance.id,
    )
