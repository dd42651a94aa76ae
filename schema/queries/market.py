"""Queries: market, what the provider offers; offerHistory, how that was; alerts."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema.context import Info
from schema.filters import check_values, invalid_filter
from schema.inputs import After, First, Which
from schema.permissions import query
from schema.types.market.alert import MarketAlert, MarketAlertConnection, MarketAlertEdge
from schema.types.market.offer import MarketFilter, MarketOffer, OfferBucket, check_gpu_count
from schema.types.money import BillingMode
from server.clock import now
from server.db import tables
from server.db.pages import Where
from server.market.history import BUCKETS_MAX, read_buckets
from server.market.queries import read_offers

DAY = timedelta(days=1)
BUCKET = timedelta(hours=1)


@strawberry.type
class MarketQueries:
    @query("What the provider offers, as last seen by the server: prices and stock. Also a subscription.")
    async def market(self, info: Info, filter: Annotated[MarketFilter | None, Which] = None) -> list[MarketOffer]:
        wanted = (filter or MarketFilter()).to_domain()
        async with info.context.read() as session:
            return [MarketOffer.of(offer) for offer in await read_offers(session, wanted)]

    @query("Alerts of the project, newest first.")
    async def alerts(self, info: Info, first: First = 50, after: After = None) -> MarketAlertConnection:
        return await MarketAlertConnection.newest_first(
            info,
            tables.MarketAlertRow,
            Where().given("project_id = {}", info.context.caller.project_id),
            MarketAlertEdge,
            MarketAlert.of,
            first=first,
            after=after,
        )

    @query("Price and stock of a product over a time, in at most 1,000 parts.")
    async def offer_history(
        self,
        info: Info,
        product_name: Annotated[str, strawberry.argument(description="Whole name of the product.")],
        region: Annotated[str, strawberry.argument(description="Region code.")],
        billing_mode: Annotated[BillingMode, strawberry.argument(description="Billing mode.")],
        gpu_count: Annotated[int, strawberry.argument(description="GPUs of one machine; 0 for CPU products.")] = 1,
        since: Annotated[
            datetime | None, strawberry.argument(description="Begin. Default: a day before the end.")
        ] = None,
        until: Annotated[datetime | None, strawberry.argument(description="End, at most now, the default.")] = None,
        bucket: Annotated[timedelta, strawberry.argument(description="Length of each part.")] = BUCKET,
    ) -> list[OfferBucket]:
        check_values(texts=[product_name, region])
        check_gpu_count(gpu_count)
        moment = now()
        end = moment if until is None else min(until, moment)
        begin = end - DAY if since is None else since
        if begin >= end:
            raise invalid_filter("`since` must be before `until`, and in the past.")
        if bucket < timedelta(seconds=1) or (end - begin) / bucket > BUCKETS_MAX:
            raise invalid_filter(f"`bucket` must be a second or more, and give at most {BUCKETS_MAX} parts.")
        async with info.context.read() as session:
            buckets = await read_buckets(
                session,
                product_name=product_name,
                region=region,
                mode=billing_mode.value,
                gpu_count=gpu_count,
                since=begin,
                until=end,
                length=bucket,
            )
        return [OfferBucket.of(each) for each in buckets]
