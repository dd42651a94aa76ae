"""Lets an operation wait for capacity, inside the transactions of the handler that carries it out.

The run that finds no offer ends, and so does its job: the operation gets another when an offer wakes it.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Operation
from server.events.event import EventType
from server.instances import operations, transitions
from server.instances.limits.spec import read, seconds_to_end
from server.instances.placement import MODES, Candidate, Requirements
from server.instances.transitions import Cause
from server.jobs.failures import Reason
from server.jobs.registry import JobContext
from server.market import outlook, waits
from server.market.wait_draft import USUAL_PRIORITY
from server.market.waits import WAITING_FOR_CAPACITY, Needs, Waiting
from server.novita.models import Cluster, find_cluster
from server.queue.kinds import OperationWork
from server.spend.admission import Want, admit, token_of_run

NOT_RESERVED: dict[str, int | None] = {"reserved_price_e5": None, "reserved_s": None}


def needs_of(requirements: Requirements, clusters: Sequence[Cluster], *, within: Sequence[str] | None = None) -> Needs:
    """What an offer has to fulfil for a new machine; `within`: the regions of a token."""
    codes = _codes(clusters, requirements.regions)
    allowed = codes if within is None else _codes(clusters, within)
    return Needs(
        product_name=requirements.product_name,
        gpu_count=requirements.gpu_count,
        regions=[code for code in codes if code in allowed],
        modes=MODES[requirements.billing],
        max_price_e5=requirements.max_hourly_price_e5,
        rootfs_size_gb=requirements.rootfs_size_gb,
    )


def _codes(clusters: Sequence[Cluster], regions: Sequence[str]) -> list[str]:
    known = [find_cluster(clusters, region) for region in regions]
    return list(dict.fromkeys(cluster.code for cluster in known if cluster is not None))


async def offers_of_older(
    session: AsyncSession, instance: Instance, operation: Operation, waiting: Waiting | None
) -> frozenset[tuple[str, str, str]]:
    """The offers that an operation must leave to those of its project that wait and go first; none if it has waited
    itself, because it is then woken in its turn."""
    if waiting is not None and waiting.row is not None:
        return frozenset()
    return await waits.wanted_by_older(
        session,
        project_id=instance.project_id,
        product_name=instance.product_name,
        gpu_count=instance.gpu_count,
        priority=USUAL_PRIORITY if waiting is None else waiting.wish.priority,
        since=operation.created_at,
    )


async def fall_asleep(
    session: AsyncSession,
    work: OperationWork,
    operation: Operation,
    needs: Needs,
    waiting: Waiting,
    *,
    unfit: Sequence[str] = (),
    by_host: bool = False,
    blocked_by: str | None = None,
) -> None:
    """Begin the wait of a locked operation that has found no offer, or one that a budget or quota does not allow. It
    reserves nothing of a budget meanwhile."""
    estimate = await outlook.next_offer_at(session, needs)
    await operations.set_reserve(session, operation, **NOT_RESERVED)
    await operations.set_estimate(session, operation.id, estimate)
    cause = Cause(operation.id, operation.requested_by)
    instance = await transitions.update(
        session,
        operation.instance_id,
        cause=cause,
        status_reason=WAITING_FOR_CAPACITY,
        estimated_ready_at=estimate,
    )
    values = {"until": waiting.until.isoformat(), "priority": str(waiting.wish.priority)}
    await transitions.record_event(session, EventType.WAIT_BEGAN, instance, cause=cause, values=values)
    await waits.begin(
        session, operation, work, needs, waiting.wish, unfit=unfit, by_host=by_host, blocked_by=blocked_by
    )


async def match(session: AsyncSession, operation: Operation, instance: Instance) -> Candidate | None:
    """The offer that a locked operation was woken for, admitted; None if it is gone. Raises BudgetExceeded and
    QuotaExceeded."""
    offer = await waits.found(session, operation.id)
    if offer is None:
        return None
    candidate = Candidate(offer.region, offer.cluster_id, offer.product_id, offer.mode, offer.price_e5)
    is_repeated = operation.reserved_price_e5 is not None  # the provider was away, or limits its calls
    await admit_again(session, operation, instance, offer.price_e5)
    if is_repeated:
        return candidate
    values = {"region": offer.region, "billingMode": offer.mode, "pricePerHourE5": str(offer.price_e5)}
    cause = Cause(operation.id, operation.requested_by)
    await transitions.record_event(session, EventType.WAIT_MATCHED, instance, cause=cause, values=values)
    return candidate


async def admit_again(session: AsyncSession, operation: Operation, instance: Instance, price_e5: int) -> None:
    """Raise BudgetExceeded or QuotaExceeded, or reserve what the machine may cost."""
    seconds = seconds_to_end(None if instance.lifetime is None else read(instance.lifetime), at=now())
    payer = operation.requested_by or await token_of_run(session, instance.id)
    want = Want(instance.project_id, payer, instance.labels, price_e5, seconds, instance.gpu_count)
    await operations.set_reserve(session, operation, **NOT_RESERVED)  # else it would count itself
    await admit(session, want)
    await operations.set_reserve(session, operation, **want.reserve)


async def sleep_again(
    session: AsyncSession,
    operation: Operation,
    *,
    refusal: Reason | None = None,
    unfit: Sequence[str] = (),
    blocked_by: str | None = None,
    by_host: bool = False,
) -> None:
    """Let a locked operation wait on. With a refusal by the provider there is an event; else nothing has happened."""
    await operations.set_reserve(session, operation, **NOT_RESERVED)
    cause = Cause(operation.id, operation.requested_by)
    instance = await transitions.update(session, operation.instance_id, cause=cause, status_reason=WAITING_FOR_CAPACITY)
    if refusal is not None:
        values = {"code": refusal.code, "message": refusal.message}
        await transitions.record_event(session, EventType.WAIT_RETURNED, instance, cause=cause, values=values)
    is_try = refusal is not None
    await waits.sleep(session, operation.id, is_try=is_try, unfit=unfit, blocked_by=blocked_by, by_host=by_host)


async def expire(session: AsyncSession, operation: Operation) -> Reason:
    """Write that the wait of a locked operation is over; the caller ends the operation for this reason."""
    instance = await transitions.lock(session, operation.instance_id)
    cause = Cause(operation.id, operation.requested_by)
    await transitions.record_event(session, EventType.WAIT_EXPIRED, instance, cause=cause, values={})
    return Reason("WAIT_EXPIRED", "No capacity was offered to it in the time that it was to wait.", retryable=True)


def provider_since(operation: Operation, waiting: Waiting | None, ctx: JobContext) -> datetime:
    """From when PROVIDER_MAX_WAIT counts. It does not count while an operation may wait anyway."""
    if waiting is None or waiting.row is None:
        return operation.created_at
    latest = min(now(), waiting.until) - ctx.settings.provider_max_wait / 2
    return max(waiting.woken_at or latest, latest)
