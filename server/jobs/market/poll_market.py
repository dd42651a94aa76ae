"""Reads the provider's offers, one place at a time, and writes what changed. One job for all processes.

A run reads at most one place and says when the next is due. A new subscriber makes the job due at once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from server.errors import NovitaError
from server.jobs.registry import JobContext, handles
from server.market import places, tape
from server.market.places import Place
from server.novita.models import Product
from server.novita.transport.concurrency import CallPriority
from server.observe import metrics
from server.queue.handler import Again, Outcome
from server.queue.kinds import PollMarket

log = structlog.get_logger(__name__)


@handles(PollMarket)
async def poll_market(_work: PollMarket, ctx: JobContext) -> Outcome:
    try:
        clusters = await ctx.catalog.regions()
    except NovitaError as error:
        log.info("market.not_read", code=error.code, error=error.message)
        return Again(after=ctx.settings.market_hot)
    regions = [cluster.code for cluster in clusters]
    async with ctx.write() as session:
        await places.add_places(session, clusters, [1])
        hot, cold = ctx.settings.market_hot, ctx.settings.market_cold
        due = await places.read_due(session, regions, hot=hot, cold=cold)
        calls = await places.read_calls(session)
        place, pause = places.choose(due, calls, calls_max=ctx.settings.market_calls, hot=hot)
        if place is None:
            return Again(after=timedelta(seconds=pause))
        at = await places.begin_call(session, place)
    try:
        await _look(place, at, ctx)
    except NovitaError as error:
        log.info("market.not_read", region=place.region, mode=place.mode, code=error.code, error=error.message)
    return Again(after=timedelta(0))


async def _look(place: Place, at: datetime, ctx: JobContext) -> None:
    products = await _list(place, ctx)
    async with ctx.write() as session:
        changed = await tape.record_look(session, place, products, at=at)
    metrics.MARKET_LOOKS.add()
    metrics.MARKET_CHANGES.add(by=len(changed))


async def _list(place: Place, ctx: JobContext) -> Sequence[Product]:
    if place.gpu_count == 0:
        listed = await ctx.novita.cpu_products(cluster_id=place.cluster_id, priority=CallPriority.POLL)
        return [product.as_product((place.region,)) for product in listed]
    return await ctx.novita.products(
        cluster_id=place.cluster_id, billing=place.mode, gpu_count=place.gpu_count, priority=CallPriority.POLL
    )
