"""The account's money."""

from datetime import datetime

from server.novita.models.billing import Balance, BillLine
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.request import BILLING_PREFIX, ApiCalls, get


class BillingCalls(ApiCalls):
    async def balance(self, *, priority: CallPriority = CallPriority.USER) -> Balance:
        call = get("/balance/detail", prefix=BILLING_PREFIX)
        return await self._transport.call(call, Balance.read, priority=priority)

    async def bills(
        self,
        *,
        since: datetime,
        until: datetime,
        cycle: str = "Hour",
        instance_id: str | None = None,
        priority: CallPriority = CallPriority.USER,
    ) -> tuple[BillLine, ...]:
        """What machines cost by the second, one line per machine and cycle (Hour, Day, Week or Month). There are no
        pages: at most 31 days."""
        call = get(
            "/bill/list",
            prefix=BILLING_PREFIX,
            cycleType=cycle,
            productCategory="gpu",
            startTime=since,
            endTime=until,
            ownerId=instance_id,
        )
        return await self._transport.call(call, BillLine.read_all, priority=priority)

    async def subscription_bills(
        self,
        *,
        since: datetime,
        until: datetime,
        instance_id: str | None = None,
        priority: CallPriority = CallPriority.USER,
    ) -> tuple[BillLine, ...]:
        """What was paid in advance between these times, at most 31 days; one line per purchase and renewal."""
        call = get(
            "/bill/monthly/list",
            prefix=BILLING_PREFIX,
            category="gpu",
            startTime=since,
            endTime=until,
            ownerId=instance_id,
        )
        return await self._transport.call(call, BillLine.read_all, priority=priority)
