"""A project's rules for lifetimes: which one is required, how long it may be, and what is the default."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import LifetimePolicy
from server.errors import Invalid, LifetimeAbovePolicy, Problem, Refused
from server.instances.limits.spec import IDLE, INVALID_LIFETIME, LONGEST, SECOND, SHORTEST, Idle, Lifetime, Path

PATH = ("input", "lifetime")


@dataclass(frozen=True, slots=True)
class Policy:
    """Without any rule for a project that has set none."""

    required: bool = False
    max_duration_at_most: timedelta | None = None
    default_max_duration: timedelta | None = None
    default_idle: Idle | None = None
    needs_end: bool = False  # because of the caller's token, which bounds every run

    @classmethod
    def of(cls, row: Mapping[Any, Any] | None) -> "Policy":
        """From the columns of a row."""
        if row is None:
            return cls()
        return cls(
            required=row["required"],
            max_duration_at_most=_seconds(row["max_duration_at_most_s"]),
            default_max_duration=_seconds(row["default_max_duration_s"]),
            default_idle=None if row["default_idle"] is None else IDLE.validate_python(row["default_idle"]),
        )

    def check(self) -> None:
        """Raise Invalid with every problem of the rules themselves."""
        problems = list(self._problems())
        if problems:
            raise Invalid(problems)

    def _problems(self) -> Iterator[Problem]:
        at_most, default = self.max_duration_at_most, self.default_max_duration
        for name, value in (("maxDurationAtMost", at_most), ("defaultMaxDuration", default)):
            if value is not None and not SHORTEST <= value <= LONGEST:
                message = f"It must be {SHORTEST // SECOND} to {LONGEST // SECOND} s."
                yield Problem(INVALID_LIFETIME, message, ("input", name))
        if at_most is not None and default is not None and default > at_most:
            yield Problem(INVALID_LIFETIME, "It must not be above maxDurationAtMost.", ("input", "defaultMaxDuration"))
        if self.default_idle is not None:
            yield from self.default_idle.problems(("input", "defaultIdle"))

    def applied(
        self, limits: Lifetime | None, *, at: datetime, server_default: timedelta | None, has_gpu: bool
    ) -> Lifetime | None:
        """The limits with the defaults of the project and the server; raises Refused if the project forbids them."""
        limits = limits or Lifetime()
        if not _has_end(limits):
            default = self.default_max_duration or server_default
            if default is not None and self.max_duration_at_most is not None:
                default = min(default, self.max_duration_at_most)
            limits = limits if default is None else replace(limits, max_duration=default)
        refuse_idle_without_gpu(limits, has_gpu=has_gpu)
        if limits.idle is None and self.default_idle is not None and has_gpu:
            limits = replace(limits, idle=self.default_idle)
        self.refuse(limits, at=at)
        return None if limits == Lifetime() else limits

    def refuse(self, limits: Lifetime | None, *, at: datetime) -> None:
        """Raise Refused if the project requires other limits, or shorter ones."""
        if self.required and (limits is None or not _has_end(limits)):
            raise Refused("LIFETIME_REQUIRED", "The project requires maxDuration or deadline.", PATH)
        if self.needs_end and self.max_duration_at_most is not None and (limits is None or not _has_end(limits)):
            raise LifetimeAbovePolicy(self.max_duration_at_most, PATH)
        if limits is None or self.max_duration_at_most is None:
            return
        if limits.max_duration is not None and limits.max_duration > self.max_duration_at_most:
            raise LifetimeAbovePolicy(self.max_duration_at_most, (*PATH, "maxDuration"))
        if limits.deadline is not None and limits.deadline > at + self.max_duration_at_most:
            raise LifetimeAbovePolicy(self.max_duration_at_most, (*PATH, "deadline"))


async def read_policy(session: AsyncSession, project_id: UUID) -> Policy:
    return (await read_policies(session, [project_id]))[project_id]


async def read_policies(session: AsyncSession, project_ids: Sequence[UUID]) -> dict[UUID, Policy]:
    table = LifetimePolicy.__table__
    found = await session.execute(select(table).where(table.c.project_id.in_(project_ids)))
    return dict.fromkeys(project_ids, Policy()) | {row["project_id"]: Policy.of(row) for row in found.mappings()}


async def set_policy(session: AsyncSession, project_id: UUID, policy: Policy) -> None:
    """Replace the project's rules. They hold for requests from now on; accepted lifetimes stay."""
    policy.check()
    values = {
        "required": policy.required,
        "max_duration_at_most_s": _number(policy.max_duration_at_most),
        "default_max_duration_s": _number(policy.default_max_duration),
        "default_idle": None if policy.default_idle is None else IDLE.dump_python(policy.default_idle, mode="json"),
        "updated_at": func.clock_timestamp(),
    }
    new = insert(LifetimePolicy).values(project_id=project_id, **values)
    await session.execute(new.on_conflict_do_update(index_elements=[LifetimePolicy.project_id], set_=values))


def refuse_idle_without_gpu(limits: Lifetime | None, *, has_gpu: bool, path: Path = PATH) -> None:
    if limits is not None and limits.idle is not None and not has_gpu:
        message = "Only an instance with a GPU can be idle."
        raise Invalid([Problem(INVALID_LIFETIME, message, (*path, "idle"))])


def _has_end(limits: Lifetime) -> bool:
    return limits.max_duration is not None or limits.deadline is not None


def _seconds(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _number(value: timedelta | None) -> int | None:
    return None if value is None else int(value.total_seconds())
