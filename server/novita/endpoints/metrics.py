"""The utilisation of an instance over time."""

from datetime import datetime, timedelta

from server.novita.models.metrics import InstanceMetrics
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.request import METRICS_PREFIX, ApiCalls, get


class MetricsCalls(ApiCalls):
    async def metrics(
        self,
        novita_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        interval: timedelta | None = None,
        priority: CallPriority = CallPriority.POLL,
    ) -> InstanceMetrics:
        """About a minute late; by default the last minute. The interval must be longer than 15 s."""
        call = get(
            "/gpu/instance",
            prefix=METRICS_PREFIX,
            instanceId=novita_id,
            startTime=since,
            endTime=until,
            interval=None if interval is None else int(interval.total_seconds()),
        )
        return await self._transport.call(call, InstanceMetrics.read, priority=priority)
