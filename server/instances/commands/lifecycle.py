"""Accepts start, stop, restart and migrate; a worker carries them out."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.audit.record import note_target
from server.auth.caller import Caller
from server.clock import format_id, now
from server.db.database import Database
from server.db.tables import Instance
from server.db.text import is_storable
from server.enums import InstanceStatus, OperationKind, OperationReason, OperationStatus
from server.errors import Invalid, NotFound, Problem, Refused, VersionConflict
from server.idempotency import IdempotentRequest, key_problems, requested_fields
from server.instances import operations, transitions
from server.instances.commands.revert import end_attempt
from server.instances.drafts import StartDraft
from server.instances.estimates import usual_time
from server.instances.idempotency import Accepted, find_accepted, run_once
from server.instances.limits.of_token import policy_for, refuse_machine
from server.instances.limits.policy import PATH, read_policy
from server.instances.limits.spec import Lifetime, read, refuse_near_deadline, seconds_to_end
from server.instances.queries import instances
from server.instances.recovery import incident
from server.instances.start_steps import ordered
from server.instances.status import VERBS, Verb, has_machine, refuse_illegal, start_by
from server.queue.enqueue import enqueue
from server.spend.admission import Want, admit, token_of_run
from server.spend.ledger import CostBasis


@dataclass(frozen=True, slots=True)
class Target:
    """The instance by its id or by its name, exactly one of them."""

    id: UUID | None = None
    name: str | None = None
    path: tuple[str, ...] | None = None  # of the input field, where it is not the usual one

    @property
    def identity(self) -> dict[str, Any]:
        """For the fingerprint of a request."""
        return {"id": self.id} if self.name is None else {"instance_name": self.name}


async def accept(
    database: Database,
    kind: OperationKind,
    target: Target,
    *,
    by: Caller,
    key: str | None = None,
    asked_key: str | None = None,
    draft: StartDraft | None = None,
    expected_version: int | None = None,
    default_max_duration: timedelta | None = None,
    highest_price: Callable[[Instance], Awaitable[int]] | None = None,
) -> Accepted:
    """Accept a verb: transition, operation, events and job in one transaction.

    The row is locked first: of two concurrent callers, the second finds the operation of the first and is refused.
    `highest_price` is what a start may cost per hour; without it, as much as its machine.
    """
    refuse_invalid(target, key)
    verb = VERBS[kind]
    fields: dict[str, Any] = {
        "id": target.id,
        "name": target.name,
        **(requested_fields(draft) if draft else {}),
    }
    if expected_version is not None:
        fields["expected_version"] = expected_version
    request = IdempotentRequest.of(by, asked_key or key, f"{kind.lower()}Instance", fields)
    previous = await find_accepted(database, request)
    if previous is not None:
        return previous
    async with database.read() as session:
        instance = await find_target(session, target, by)
        usual = await _usual_time(session, verb, instance)
    price_e5 = None if highest_price is None else await highest_price(instance)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        locked = await lock_target(session, Target(instance.id), by, expected_version)
        if kind is OperationKind.STOP:
            await operations.end_replacement(session, locked)
            locked = await end_attempt(session, locked, by=by.token_id)
        await operations.refuse_second(session, locked.id)
        changes = draft.fields(locked) if draft else {}
        begun, wanted = verb, dict[str, Any]()
        if draft is not None:
            begun = start_by(draft.steps, locked)
            wanted = {} if begun == verb else {"steps": list(ordered(draft.steps))}
            wanted |= {} if draft.on_no_capacity is None else draft.on_no_capacity.wanted(at=now())
        if kind is OperationKind.STOP and incident.is_open(locked):
            if not has_machine(locked) or locked.status == InstanceStatus.EXITED:
                return await _end_recovery(session, locked, by=by, operation_id=operation_id)
            changes["recovery_state"] = incident.ended(locked, "STOPPED")
        if kind is OperationKind.START:
            given = None if draft is None else draft.lifetime
            changes |= await start_limits(session, locked, given, by=by, server_default=default_max_duration)
        return await begin_verb(
            session,
            begun,
            locked,
            by=by.token_id,
            operation_id=operation_id,
            usual=usual,
            changes=changes,
            wanted=wanted,
            highest_price_e5=price_e5,
        )

    return await run_once(database, request, write)


async def _end_recovery(session: AsyncSession, instance: Instance, *, by: Caller, operation_id: UUID) -> Accepted:
    """A stop between two attempts of a recovery: the provider has nothing to do, so it has already succeeded."""
    operation = await operations.begin(
        session, instance, OperationKind.STOP, by=by.token_id, id=operation_id, is_checked=True
    )
    cause = transitions.Cause(operation.id, by.token_id)
    instance = await transitions.update(
        session, instance.id, cause=cause, recovery_state=incident.ended(instance, "STOPPED"), status_reason=None
    )
    finished = await operations.finish(session, operation.id, OperationStatus.SUCCEEDED)
    return Accepted(instance, finished or operation)


async def start_limits(
    session: AsyncSession,
    instance: Instance,
    given: Lifetime | None = None,
    *,
    by: Caller | None = None,
    server_default: timedelta | None = None,
) -> dict[str, Any]:
    """The limits of the new run: those given, else the stored ones. Raises Refused if it would end at once, or if the
    caller's token is not for such an instance."""
    if by is not None:
        refuse_machine(by, instance.product_name, instance.region)
    moment = now()
    stored = None if instance.lifetime is None else read(instance.lifetime)
    policy = policy_for(await read_policy(session, instance.project_id), by)
    limits = given or stored
    refuse_near_deadline(given, PATH, at=moment)
    if limits is not None and limits.deadline is not None and limits.deadline <= moment:
        message = "Its deadline has passed; extend its lifetime first, or give another one."
        raise Refused("LIFETIME_OVER", message, ("input", "lifetime"))
    limits = policy.applied(limits, at=moment, server_default=server_default, has_gpu=instance.gpu_count > 0)
    return {} if limits == stored or limits is None else {"lifetime": limits.to_json()}


def refuse_invalid(target: Target, key: str | None) -> None:
    problems = list(key_problems(key))
    if (target.id is None) == (target.name is None):
        problems.append(Problem("INVALID_TARGET", "Give either the id or the name.", ("input", "id")))
    if problems:
        raise Invalid(problems)


async def find_target(session: AsyncSession, target: Target, by: Caller) -> Instance:
    """The caller's instance, or NotFound."""
    if target.id is not None:
        instance = await instances.get_instance(session, target.id, by=by)
    else:
        name = str(target.name)
        instance = None
        if is_storable(name):  # else no instance has it, and the database would refuse the query
            instance = await instances.find_instance_by_name(session, name, by=by)
    if instance is None:
        raise NotFound("instance", target.path or ("input", "id" if target.id is not None else "name"))
    if target.id is None:
        note_target(format_id("inst", instance.id))
    return instance


async def lock_target(session: AsyncSession, target: Target, by: Caller, expected_version: int | None) -> Instance:
    """The caller's instance, locked. Raises if its version is not the expected one."""
    instance_id = target.id if target.id is not None else (await find_target(session, target, by)).id
    instance = await transitions.lock(session, instance_id)
    if not by.sees(instance):
        raise NotFound("instance", target.path or ("input", "id"))
    refuse_changed(instance, expected_version)
    return instance


async def lock_for(session: AsyncSession, target: Target, by: Caller, expected_version: int | None = None) -> Instance:
    """The same, and without an open operation."""
    instance = await lock_target(session, target, by, expected_version)
    await operations.refuse_second(session, instance.id)
    return instance


def refuse_changed(instance: Instance, expected_version: int | None) -> None:
    if expected_version is not None and expected_version != instance.version:
        raise VersionConflict(instance.version)


async def _usual_time(session: AsyncSession, verb: Verb, instance: Instance) -> timedelta | None:
    if not verb.is_estimated:
        return None
    return await usual_time(
        session,
        verb.kind,
        project_id=instance.project_id,
        product_name=instance.product_name,
        region=instance.region,
    )


async def begin_verb(
    session: AsyncSession,
    verb: Verb,
    instance: Instance,
    *,
    by: UUID | None,
    operation_id: UUID | None = None,
    usual: timedelta | None = None,
    changes: Mapping[str, Any] | None = None,
    reason: OperationReason | None = None,
    wanted: Mapping[str, Any] | None = None,
    highest_price_e5: int | None = None,
) -> Accepted:
    """Begin a verb on a locked instance without an open operation: for the token `by`, or for a `reason` of our own."""
    refuse_illegal(verb, instance)
    if verb.to is None or verb.work is None:
        raise TypeError(f"{verb.kind} is accepted elsewhere")
    ready_at = None if usual is None else now() + usual
    if verb.to is InstanceStatus.STARTING and reason is not OperationReason.RECOVERY:
        changes = {**(changes or {}), "recovery_state": None}  # from here on it may be recovered again
    reserve: dict[str, Any] = {}
    is_unpaid_restart = verb.to is InstanceStatus.RESTARTING and CostBasis.of(instance).is_paid is False
    if verb.to is InstanceStatus.STARTING or is_unpaid_restart:
        is_new_run = verb.kind is OperationKind.START and by is not None
        payer = by if is_new_run else await token_of_run(session, instance.id)
        reserve = await _admit_start(session, instance, changes or {}, payer=payer, price_e5=highest_price_e5)
    operation = await operations.begin(
        session,
        instance,
        verb.kind,
        by=by,
        id=operation_id,
        estimated_ready_at=ready_at,
        before=state_before(instance),
        reason=reason,
        action=verb.action,
        wanted=dict(wanted or {}),
        is_checked=True,
        **reserve,
    )
    cause = transitions.Cause(operation.id, by)
    # A stop has no ready time.
    instance = await transitions.transition(
        session, instance.id, verb.to, cause=cause, estimated_ready_at=ready_at, **(changes or {})
    )
    await enqueue(
        session, verb.work(instance.id, operation.id), project_id=instance.project_id, instance_id=instance.id
    )
    return Accepted(instance, operation)


async def _admit_start(
    session: AsyncSession,
    instance: Instance,
    changes: Mapping[str, Any],
    *,
    payer: UUID | None,
    price_e5: int | None,
) -> dict[str, Any]:
    """Raise BudgetExceeded or QuotaExceeded, or return what the operation reserves."""
    stored: dict[str, Any] | None = changes.get("lifetime", instance.lifetime)
    seconds = seconds_to_end(None if stored is None else read(stored), at=now())
    price = max(price_e5 or 0, instance.price_per_hour_e5 or 0)
    want = Want(instance.project_id, payer, instance.labels, price, seconds, instance.gpu_count)
    await admit(session, want)
    return want.reserve


def state_before(instance: Instance) -> dict[str, Any]:
    """What a refused verb goes back to."""
    return {
        "status": instance.status,
        "running_at": _plain(instance.running_at),
        "ready_at": _plain(instance.ready_at),
        "failure_code": instance.failure_code,
        "failure_message": instance.failure_message,
    }


def _plain(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
