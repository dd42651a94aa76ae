"""Extends the lifetime of an instance. An accepted extension always holds: it takes the same lock as the end."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database
from server.db.tables import Instance, Operation
from server.enums import OperationPhase
from server.errors import Invalid, KeyReused, LifetimeAbovePolicy, Problem, Refused
from server.idempotency import CreatedObject, IdempotentRequest, reserve, write_once
from server.instances import operations, transitions
from server.instances.commands.lifecycle import Target, find_target, lock_target, refuse_invalid
from server.instances.limits.of_token import policy_for
from server.instances.limits.policy import read_policy
from server.instances.limits.spec import INVALID_LIFETIME, Lifetime, read
from server.instances.limits.steps import ENDS, Part, State, part_of, run_end
from server.lifetimes.end import database_time
from server.spend.admission import Want, admit, token_of_run

MADE = (OperationPhase.PROVISIONING, OperationPhase.CHECKING_HEALTH)  # the machine that is started is known

RELOCATING = frozenset({"steps", "replaces"})  # of what an operation wants


@dataclass(frozen=True, slots=True)
class Extension:
    """By a duration, or until a time: exactly one of them."""

    by: timedelta | None = None
    until: datetime | None = None
    expected_version: int | None = None

    @property
    def path(self) -> tuple[str, str]:
        return "input", "by" if self.until is None else "until"


async def extend_lifetime(
    database: Database, target: Target, extension: Extension, *, by: Caller, key: str | None = None
) -> CreatedObject[Instance]:
    """Move the ends of `max_duration` and `deadline`, never to an earlier time; counts as a heartbeat.

    A request that is sent again with its key moves nothing, and gets the instance as it is now.
    """
    refuse_invalid(target, key)
    if (extension.by is None) == (extension.until is None):
        raise _invalid("Give either `by` or `until`.", ("input", "by"))
    if extension.by is not None and extension.by <= timedelta(0):
        raise _invalid("It must be longer than 0 s.", ("input", "by"))
    fields = {**target.identity, **asdict(extension)}
    request = IdempotentRequest.of(by, key, "extendLifetime", fields)

    async def write(session: AsyncSession) -> Instance:
        chosen = target
        if key is not None:  # before the row's lock, as in every command that takes a key
            chosen = Target((await find_target(session, target, by)).id)
            await reserve(session, request, None, object_id=chosen.id)
        instance = await lock_target(session, chosen, by, extension.expected_version)
        moment = await database_time(session)
        if extension.until is not None and extension.until <= moment:
            raise _invalid("It must be in the future.", ("input", "until"))
        await _refuse_over(session, instance)
        columns, until = await _moved(session, instance, extension, moment, by=by)
        await _admit(session, instance, extension, until, moment)
        columns["heartbeat_at"] = moment
        values = {} if until is None else {"at": until.isoformat()}
        cause = transitions.Cause(token_id=by.token_id)
        return await transitions.extend(session, instance.id, cause=cause, values=values, **columns)

    extended = await write_once(database, request, Instance, write)
    if extended.row is None or not by.sees(extended.row):
        raise KeyReused
    return extended


async def _refuse_over(session: AsyncSession, instance: Instance) -> None:
    """An end that was accepted is carried out: an extension that says otherwise would not hold."""
    running = await operations.open_operation(session, instance.id)
    is_ending = running is not None and running.reason is not None and running.kind in ENDS.values()
    if is_ending or part_of(instance.status) is Part.OVER:
        raise Refused("LIFETIME_OVER", "Its lifetime has ended; it is being stopped or deleted.", ("input", "id"))


async def _moved(
    session: AsyncSession, instance: Instance, extension: Extension, moment: datetime, *, by: Caller
) -> tuple[dict[str, Any], datetime | None]:
    """The columns to write, and the new end where it is known already."""
    limits = None if instance.lifetime is None else read(instance.lifetime)
    if limits is None:
        raise _invalid("It has no lifetime.", ("input", "id"))
    expected = _expected_run_end(instance, limits, moment)
    ends = _ends(instance, limits, moment)
    if not ends:
        if limits.heartbeat is None and limits.idle is None:
            raise _invalid("It has no end that can be extended.", ("input", "id"))
        return {"lifetime_state": _state(instance, busy_at=moment)}, None
    until = extension.until or max(min(ends), moment) + (extension.by or timedelta(0))
    await _refuse_above_policy(session, instance, extension, until, moment, by=by)
    values: dict[str, Any] = {"busy_at": moment}
    state = State(instance.lifetime_state)
    is_known = extension.until is not None or expected is None or expected > min(ends)
    if not is_known:  # it is counted from the provider's acceptance of the run, which has not come yet
        values["extra"] = state.number("extra") + (extension.by or timedelta(0)).total_seconds()
    if limits.max_duration is not None and (is_known or state.time("floor") is not None):
        values["floor"] = max(until, state.time("floor") or until)
    fields: dict[str, Any] = {"lifetime_state": _state(instance, **values)}
    if limits.deadline is not None and until > limits.deadline:
        fields["lifetime"] = replace(limits, deadline=until).to_json()
    # A time before the present end moves nothing.
    return fields, max(until, min(ends)) if is_known else None


def _ends(instance: Instance, limits: Lifetime, moment: datetime) -> list[datetime]:
    """When its present run ends, as far as that can be said."""
    run = run_end(instance, limits) or _expected_run_end(instance, limits, moment)
    return [each for each in (run, limits.deadline) if each is not None]


def _expected_run_end(instance: Instance, limits: Lifetime, moment: datetime) -> datetime | None:
    """When `max_duration` ends a run that the provider has not accepted yet, if it does so now."""
    if limits.max_duration is None or instance.run_accepted_at or part_of(instance.status) is not Part.RUNNING:
        return None
    state = State(instance.lifetime_state)
    end = moment + limits.max_duration + timedelta(seconds=state.number("extra"))
    return max(end, state.time("floor") or end)


async def _admit(
    session: AsyncSession,
    instance: Instance,
    extension: Extension,
    until: datetime | None,
    moment: datetime,
) -> None:
    """Raise BudgetExceeded if the time that is added may cost more than is left. A stopped machine costs nothing."""
    limits = None if instance.lifetime is None else read(instance.lifetime)
    if limits is None or part_of(instance.status) is not Part.RUNNING:
        return
    ends = _ends(instance, limits, moment)
    if not ends:
        return
    counted = max(timedelta(0), min(ends) - moment)
    added = (extension.by or timedelta(0)) if until is None else until - moment - counted
    if added <= timedelta(0):
        return
    running = await operations.open_operation(session, instance.id)
    price = _price(instance, running)
    seconds = (counted + added).total_seconds()
    payer = await token_of_run(session, instance.id)
    want = Want(
        instance.project_id,
        payer,
        instance.labels,
        price,
        seconds,
        instance.gpu_count,
        counted_s=counted.total_seconds(),
        counted_labels=instance.labels,
    )
    await admit(session, want)
    if running is not None and running.reserved_price_e5 is not None:
        await operations.set_reserve(session, running, **want.reserve)


def _price(instance: Instance, running: Operation | None) -> int:
    """The price of its machine. While a start may make another one, the highest that was admitted."""
    known = instance.price_per_hour_e5 or 0
    reserved = (running.reserved_price_e5 if running is not None else None) or 0
    may_relocate = running is not None and running.phase not in MADE and not RELOCATING.isdisjoint(running.wanted)
    return max(known, reserved) if may_relocate else known or reserved


async def _refuse_above_policy(
    session: AsyncSession,
    instance: Instance,
    extension: Extension,
    until: datetime,
    moment: datetime,
    *,
    by: Caller,
) -> None:
    at_most = policy_for(await read_policy(session, instance.project_id), by).max_duration_at_most
    if at_most is None:
        return
    begun_at = instance.run_accepted_at or moment
    if until > begun_at + at_most:
        raise LifetimeAbovePolicy(at_most, extension.path)


def _state(instance: Instance, **values: Any) -> dict[str, Any]:
    """What an earlier end has left behind is over."""
    cleared = dict.fromkeys(("due", "retry_at", "overdue_at", "read_at", "idle_since"))
    return State(instance.lifetime_state).with_values(**cleared, **values)


def _invalid(message: str, path: tuple[str, ...]) -> Invalid:
    return Invalid([Problem(INVALID_LIFETIME, message, path)])
