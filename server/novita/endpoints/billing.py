"""The account's money."""

from server.novita.models.billing import Balance
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.request import BILLING_PREFIX, ApiCalls, get


class BillingCalls(ApiCalls):
    async def balance(self, *, priority: CallPriority = CallPriority.USER) -> Balance:
        call = get("/balance/detail", prefix=BILLING_PREFIX)
        return await self._transport.call(call, Balance.read, priority=priority)
