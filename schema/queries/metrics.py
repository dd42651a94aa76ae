"""Queries: instanceMetrics."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.context import Info
from schema.permissions import query
from schema.types.metrics import GpuMetrics, InstanceMetrics, MetricPoint
from server.clock import now
from server.errors import NotFound
from server.lifetimes.metrics import instance_metrics, range_problem

DEFAULT_RANGE = timedelta(hours=1)


@strawberry.type
class MetricsQueries:
    @query("Utilisation of an instance, read from the provider and not stored; null if not found or without a machine.")
    async def instance_metrics(
        self,
        info: Info,
        instance_id: Annotated[strawberry.ID, strawberry.argument(description="Id of the instance.")],
        since: Annotated[
            datetime | None, strawberry.argument(description="First time. Default: an hour before `until`.")
        ] = None,
        until: Annotated[datetime | None, strawberry.argument(description="Last time. Default: now.")] = None,
        interval: Annotated[
            timedelta, strawberry.argument(description="Time between samples, at least 16 s; at most 1,000 samples.")
        ] = timedelta(seconds=60),
    ) -> InstanceMetrics | None:
        try:
            row = await info.context.loaders.instance.load(ids.parse(ids.INSTANCE, instance_id))
        except NotFound:
            return None
        if row is None:
            return None
        last = until or now()
        first = since or last - DEFAULT_RANGE
        problem = range_problem(first, last, interval)
        if problem is not None:
            raise GraphQLError(problem, extensions={"code": "INVALID_METRICS_RANGE"})
        found = await instance_metrics(
            info.context.services.provider_reader,
            row,
            since=first,
            until=last,
            interval=interval,
            by=info.context.caller,
        )
        return (
            None
            if found is None
            else InstanceMetrics(
                gpu=GpuMetrics.all_of(found.gpu.by_gpu),
                gpu_memory=GpuMetrics.all_of(found.gpu_memory.by_gpu),
                cpu=MetricPoint.all_of(found.cpu),
                memory=MetricPoint.all_of(found.memory),
                disk=MetricPoint.all_of(found.root_disk),
            )
        )
