"""Tries a failed create, start or delete again under the same instance.

A create whose machine exists is not sent again: that machine is started, or monitored if it runs. Another machine is
created only once it is certain that there is none. A start by steps that made none takes its steps again.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import now
from server.db.database import Database
from server.db.tables import Instance, Operation
from server.enums import InstanceStatus, OperationKind, OperationStatus, StartStep
from server.errors import Invalid, NotFound, Refused
from server.idempotency import IdempotentRequest, key_problems
from server.instances import attempts, operations, transitions
from server.instances.commands.delete import begin_delete
from server.instances.commands.lifecycle import Target, begin_verb, lock_for, start_limits
from server.instances.estimates import usual_time
from server.instances.idempotency import Accepted, run_once
from server.instances.limits.spec import read, seconds_to_end
from server.instances.provider.absence import GONE_AT_PROVIDER
from server.instances.queries import operations as reads
from server.instances.status import VERBS, has_machine, start_by
from server.market.wait_draft import WANTED as WAIT
from server.market.wait_draft import WaitDraft, wish_of
from server.queue.enqueue import enqueue
from server.queue.kinds import CreateInstance
from server.spend.admission import Want, admit

RETRIED = (OperationKind.CREATE, OperationKind.START, OperationKind.DELETE)
# A machine that failed its checks runs, and one that failed to start may be started again.
START_AGAIN = replace(VERBS[OperationKind.START], sources=frozenset({InstanceStatus.EXITED, InstanceStatus.FAILED}))
# Of a start by steps: which, and where another machine may be.
OF_THE_STEPS = ("steps", "regions", "on_demand_after")
# What the row has of the machine that is gone.
OF_THE_MACHINE = (
    "novita_id",
    "novita_status",
    "region",
    "product_id",
    "billing_mode",
    "price_per_hour_e5",
    "spot_reclaim_at",
    "observed_at",
    "missing_since",
    "run_accepted_at",
)


HighestPrice = Callable[[Instance, Operation, Sequence[StartStep]], Awaitable[int]]


async def retry_operation(
    database: Database,
    operation_id: UUID,
    *,
    by: Caller,
    key: str | None = None,
    expected_version: int | None = None,
    highest_price: HighestPrice | None = None,
) -> Accepted:
    """Accept a new operation that does what a failed one did not. Raises Refused if that is not possible.

    `highest_price` is what a start by steps may cost per hour; without it, as much as its machine.
    """
    problems = list(key_problems(key))
    if problems:
        raise Invalid(problems)
    fields: dict[str, Any] = {"id": operation_id}
    if expected_version is not None:
        fields["expected_version"] = expected_version
    request = IdempotentRequest.of(by, key, "retryOperation", fields)
    price_e5 = None if highest_price is None else await _price(database, operation_id, by, highest_price)

    async def write(session: AsyncSession, new_id: UUID) -> Accepted:
        failed = await reads.get_operation(session, operation_id, by=by)
        if failed is None:
            raise NotFound("operation", ("input", "id"))
        instance = await lock_for(session, Target(failed.instance_id), by, expected_version)
        await session.refresh(failed)
        await _refuse(session, failed)
        if failed.kind == OperationKind.DELETE:
            return Accepted(*await begin_delete(session, instance, by=by.token_id, operation_id=new_id))
        limits = await start_limits(session, instance, by=by)
        usual = await usual_time(
            session,
            OperationKind(failed.kind),
            project_id=by.project_id,
            product_name=instance.product_name,
            region=instance.region,
        )
        if failed.kind == OperationKind.CREATE and _is_without_machine(instance):
            return await _create_again(session, instance, new_id, request, usual=usual, failed=failed, limits=limits)
        steps = _steps_again(failed, instance)
        orders = {name: failed.wanted[name] for name in OF_THE_STEPS if steps and name in failed.wanted}
        return await begin_verb(
            session,
            start_by(steps, instance) if steps else START_AGAIN,
            instance,
            by=by.token_id,
            operation_id=new_id,
            usual=usual,
            changes=limits,
            wanted=orders | _wait_again(failed),
            highest_price_e5=price_e5,
        )

    return await run_once(database, request, write)


async def _price(database: Database, operation_id: UUID, by: Caller, highest_price: HighestPrice) -> int | None:
    """Read before the transaction, because the provider may have to be called."""
    async with database.read() as session:
        failed = await reads.get_operation(session, operation_id, by=by)
        instance = None if failed is None else await session.get(Instance, failed.instance_id)
    if failed is None or instance is None:
        return None
    steps = _steps_again(failed, instance)
    return await highest_price(instance, failed, steps) if steps else None


def _steps_again(failed: Operation, instance: Instance) -> tuple[StartStep, ...]:
    """None if the provider has accepted a step, or the machine may run: it is started, or followed, then."""
    may_run = failed.asked_at is not None or instance.status != InstanceStatus.EXITED
    if failed.kind != OperationKind.START or (may_run and has_machine(instance)):
        return ()
    steps = tuple(StartStep(each) for each in failed.wanted.get("steps", ()))
    return () if steps == (StartStep.SAME,) else steps


async def _refuse(session: AsyncSession, failed: Operation) -> None:
    if failed.status != OperationStatus.FAILED:
        raise _not_retryable(f"It is {failed.status}; only a failed operation can be tried again.")
    if failed.kind not in RETRIED:
        raise _not_retryable(f"A {failed.kind} is not tried again: request it anew.")
    later = exists().where(
        Operation.instance_id == failed.instance_id,
        Operation.created_at > failed.created_at,
        Operation.kind != OperationKind.UPDATE,
    )
    if await session.scalar(select(later)):
        raise _not_retryable("Another operation followed it; look at that one.")


def _not_retryable(message: str) -> Refused:
    return Refused("OPERATION_NOT_RETRYABLE", message)


def _wait_again(failed: Operation) -> dict[str, Any]:
    """Without capacity it waits as long as the failed one might have waited."""
    wish = wish_of(failed)
    return {} if wish is None else WaitDraft(wish.until - failed.created_at, None, wish.priority).wanted(at=now())


def _is_without_machine(instance: Instance) -> bool:
    return not has_machine(instance) or instance.failure_code == GONE_AT_PROVIDER


async def _create_again(
    session: AsyncSession,
    instance: Instance,
    operation_id: UUID,
    request: IdempotentRequest,
    *,
    usual: timedelta | None,
    failed: Operation,
    limits: dict[str, Any],
) -> Accepted:
    """With all candidates again, whichever were refused before; it may cost what the failed one might have cost."""
    if await attempts.live_of_instance(session, instance.id) is not None:
        message = "A machine may exist without a response of the provider. It is being searched for; try again later."
        raise Refused(attempts.MACHINE_MAY_EXIST, message)
    token_id = request.by.token_id
    ready_at = None if usual is None else now() + usual
    stored: dict[str, Any] | None = limits.get("lifetime", instance.lifetime)
    seconds = seconds_to_end(None if stored is None else read(stored), at=now())
    reserve: dict[str, Any] = {}  # of one that waited: it is admitted when there is an offer
    if failed.reserved_price_e5 is not None or WAIT not in failed.wanted:
        price = failed.reserved_price_e5 or 0
        want = Want(instance.project_id, token_id, instance.labels, price, seconds, instance.gpu_count)
        await admit(session, want)
        reserve = want.reserve
    operation = await operations.begin(
        session,
        instance,
        OperationKind.CREATE,
        by=token_id,
        id=operation_id,
        estimated_ready_at=ready_at,
        wanted=_wait_again(failed),
        **reserve,
    )
    instance = await transitions.transition(
        session,
        instance.id,
        InstanceStatus.CREATING,
        cause=transitions.Cause(operation.id, token_id),
        estimated_ready_at=ready_at,
        endpoints=[],
        **limits,
        **dict.fromkeys(OF_THE_MACHINE),
    )
    await enqueue(
        session,
        CreateInstance(instance.id, operation.id, request.digest, None if usual is None else usual.total_seconds()),
        project_id=instance.project_id,
        instance_id=instance.id,
    )
    return Accepted(instance, operation)
