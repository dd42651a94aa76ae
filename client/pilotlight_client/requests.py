"""The methods that are one request and one response each."""

import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from typing_extensions import Unpack

from pilotlight_client import documents
from pilotlight_client.accepted import Accepted
from pilotlight_client.decoding import datetime_from, decode, decode_error
from pilotlight_client.encoding import encode_fields
from pilotlight_client.errors import NotFound, Refused, Unreachable
from pilotlight_client.inputs import (
    AlertArguments,
    BudgetArguments,
    CreateArguments,
    EventFilter,
    ListFilter,
    OfferFilter,
    ProductArguments,
    QuoteArguments,
    SpendArguments,
    StartArguments,
    UpdateArguments,
    VerbArguments,
    WaitArguments,
)
from pilotlight_client.models import (
    Budget,
    Instance,
    InstanceEvent,
    LifetimePolicy,
    MarketAlert,
    MarketOffer,
    OfferBucket,
    Operation,
    Product,
    Quote,
    SpendReport,
    SshAccess,
    Token,
    Volume,
)
from pilotlight_client.transport import Executor

INSTANCE_ID = re.compile(r"inst_[0-9a-f]{32}")
PAGE = 25  # a page of whole instances stays within the cost that one query may have


class AsyncRequests:
    """What can be asked of a server in one request, through any executor of documents."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def create(self, **arguments: Unpack[CreateArguments]) -> Accepted:
        """Request an instance. It exists from now on; follow the operation with `wait`."""
        return await self._accept(documents.CREATE, {"idempotency_key": new_key(), **arguments})

    async def check(self, **arguments: Unpack[CreateArguments]) -> None:
        """Raise Refused if `create` would be refused; nothing is written."""
        await self._mutate(documents.CREATE, {**arguments, "validate_only": True})

    async def quote(self, **arguments: Unpack[QuoteArguments]) -> Quote:
        """What a create would get, and what it costs."""
        data = await self._executor.execute(documents.QUOTE, {"input": encode_fields(arguments)})
        quote = decode(Quote, data["quote"])
        if quote.errors:
            raise Refused(quote.errors)
        return quote

    async def start(self, instance: str, **arguments: Unpack[StartArguments]) -> Accepted:
        """Start an EXITED instance."""
        return await self._act(documents.START, instance, arguments)

    async def stop(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Stop an instance; its disk is kept and billed."""
        return await self._act(documents.STOP, instance, arguments)

    async def restart(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Restart an instance."""
        return await self._act(documents.RESTART, instance, arguments)

    async def migrate(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Move an instance to another node of its region."""
        return await self._act(documents.MIGRATE, instance, arguments)

    async def delete(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Delete an instance, whatever it is doing."""
        return await self._act(documents.DELETE, instance, arguments)

    async def update(self, instance: str, **arguments: Unpack[UpdateArguments]) -> Accepted:
        """Change name, labels, webhook, ports, disk or lifetime."""
        return await self._act(documents.UPDATE, instance, arguments)

    async def cancel(self, operation: str) -> Operation:
        """Cancel an operation that is in progress."""
        payload = await self._mutate(documents.CANCEL, {"id": operation, "idempotency_key": new_key()})
        return decode(Operation, payload["operation"])

    async def extend(
        self,
        instance: str,
        *,
        by: timedelta | float | None = None,
        until: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Instance:
        """Move the end of its lifetime, by some time or to a time."""
        given = {"by": by, "until": until, "idempotency_key": idempotency_key or new_key()}
        return decode(Instance, (await self._mutate_instance(documents.EXTEND, instance, given))["instance"])

    async def heartbeat(self, instance: str) -> datetime | None:
        """Say that the instance is in use; returns when the next heartbeat has to be there."""
        payload = await self._mutate(documents.HEARTBEAT, {"id": await self._id_of(instance)})
        return datetime_from(payload["nextAt"]) if payload["nextAt"] else None

    async def get(self, instance: str) -> Instance:
        """One instance; raises NotFound."""
        if INSTANCE_ID.fullmatch(instance):
            data = await self._executor.execute(documents.GET_BY_ID, {"id": instance})
        else:
            data = await self._executor.execute(documents.GET_BY_NAME, {"name": instance})
        if data["instance"] is None:
            raise NotFound(f"there is no instance {instance!r}")
        return decode(Instance, data["instance"])

    async def list(self, **arguments: Unpack[ListFilter]) -> AsyncIterator[Instance]:
        """All instances that match, newest first."""
        variables = {"filter": encode_fields(arguments), "orderBy": None, "first": PAGE}
        async for node in self._pages(documents.LIST, variables):
            yield decode(Instance, node)

    async def operation(self, operation: str) -> Operation:
        """One operation; raises NotFound."""
        data = await self._executor.execute(documents.GET_OPERATION, {"id": operation})
        if data["operation"] is None:
            raise NotFound(f"there is no operation {operation!r}")
        return decode(Operation, data["operation"])

    async def poll(self, operation: str, *, timeout: timedelta | float) -> Operation:
        """The operation once it has ended, or after the timeout, at most 60 s; unlike `wait` it raises neither."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        data = await self._executor.execute(documents.AWAIT_OPERATION, {"id": operation, "timeout": seconds})
        if data["operation"] is None:
            raise NotFound(f"there is no operation {operation!r}")
        return decode(Operation, data["operation"])

    async def event_page(
        self, *, after: str | None = None, first: int = 25, **arguments: Unpack[EventFilter]
    ) -> tuple[Sequence[InstanceEvent], str | None]:
        """Past events after the cursor, oldest first, and the cursor to continue after."""
        variables = {"filter": encode_fields(arguments), "after": after, "first": first}
        page = (await self._executor.execute(documents.EVENT_PAGE, variables))["page"]
        return [decode(InstanceEvent, each) for each in page["nodes"]], page["pageInfo"]["endCursor"] or after

    async def head(self) -> str:
        """The cursor of the newest event."""
        return (await self._executor.execute(documents.HEAD, {}))["serverInfo"]["eventLog"]["head"]

    async def products(self, **arguments: Unpack[ProductArguments]) -> Sequence[Product]:
        """Products with price and stock in every region."""
        data = await self._executor.execute(documents.PRODUCTS, {"filter": encode_fields(arguments)})
        return [decode(Product, each) for each in data["products"]]

    async def update_wait(self, operation: str, **arguments: Unpack[WaitArguments]) -> Operation:
        """Another end or priority of an operation that may wait for capacity."""
        payload = await self._mutate(documents.UPDATE_WAIT, {**arguments, "operation_id": operation})
        return decode(Operation, payload["operation"])

    async def market(self, **arguments: Unpack[OfferFilter]) -> Sequence[MarketOffer]:
        """What the provider offers, as last polled: prices of the whole machine, and when it was in stock."""
        data = await self._executor.execute(documents.MARKET, {"filter": encode_fields(arguments)})
        return [decode(MarketOffer, each) for each in data["market"]]

    async def offer_history(
        self,
        product: str,
        *,
        region: str,
        billing_mode: Literal["SPOT", "ON_DEMAND"] = "SPOT",
        gpu_count: int = 1,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: timedelta | float = 3600,
    ) -> Sequence[OfferBucket]:
        """Prices while it was in stock, and for how long it was, in parts of equal length; a week unless `since`."""
        given = {"product": product, "region": region, "billing_mode": billing_mode, "gpu_count": gpu_count}
        times = {"since": since, "until": until, "bucket": bucket}
        data = await self._executor.execute(documents.OFFER_HISTORY, encode_fields({**given, **times}))
        return [decode(OfferBucket, each) for each in data["offerHistory"]]

    async def alerts(self) -> AsyncIterator[MarketAlert]:
        """Alerts of the project on offers."""
        async for node in self._pages(documents.ALERTS, {}):
            yield decode(MarketAlert, node)

    async def create_alert(self, **arguments: Unpack[AlertArguments]) -> MarketAlert:
        """Announce offers that match, as events `market.alert` and to `webhook_url`."""
        given = {"idempotency_key": new_key(), **arguments}
        return decode(MarketAlert, (await self._mutate(documents.CREATE_ALERT, given))["alert"])

    async def delete_alert(self, alert: str) -> None:
        """Remove an alert."""
        await self._remove(documents.DELETE_ALERT, alert)

    async def ssh_access(self, instance: str) -> SshAccess:
        """How to log in, read from the provider now; raises NotFound if it gives no access."""
        data = await self._executor.execute(documents.SSH_ACCESS, {"instanceId": await self._id_of(instance)})
        if data["sshAccess"] is None:
            raise NotFound(f"the provider gives no SSH access to {instance!r}; it has to be running")
        return decode(SshAccess, data["sshAccess"])

    async def log(self, instance: str, *, which: Literal["CONTAINER", "SYSTEM"] = "CONTAINER", tail: int = 200) -> str:
        """The last lines of a log."""
        variables = {"instanceId": await self._id_of(instance), "which": which, "tail": tail}
        data = await self._executor.execute(documents.LOG, variables)
        return data["instanceLog"]["text"] if data["instanceLog"] else ""

    async def lifetime_policy(self) -> LifetimePolicy:
        """The project's rules for lifetimes."""
        data = await self._executor.execute(documents.POLICY, {})
        return decode(LifetimePolicy, data["viewer"]["project"]["lifetimePolicy"])

    async def spend(
        self,
        *,
        group_by: Literal["DAY", "INSTANCE", "PRODUCT", "REGION", "TOKEN", "LABEL"] = "DAY",
        label_key: str | None = None,
        **arguments: Unpack[SpendArguments],
    ) -> SpendReport:
        """What was spent, in all and by group."""
        variables = {"filter": encode_fields(arguments), "groupBy": group_by, "labelKey": label_key}
        return decode(SpendReport, (await self._executor.execute(documents.SPEND, variables))["spend"])

    async def volumes(self, *, region: str | None = None) -> AsyncIterator[Volume]:
        """Network volumes."""
        async for node in self._pages(documents.VOLUMES, {"region": region}):
            yield decode(Volume, node)

    async def create_volume(
        self, *, name: str, region: str, size_gb: int, idempotency_key: str | None = None
    ) -> Volume:
        """Create a network volume of 10 to 10240 GB."""
        given = {"name": name, "region": region, "size_gb": size_gb, "idempotency_key": idempotency_key or new_key()}
        return decode(Volume, (await self._mutate(documents.CREATE_VOLUME, given))["volume"])

    async def update_volume(self, volume: str, *, name: str | None = None, size_gb: int | None = None) -> Volume:
        """Rename or enlarge a network volume."""
        given = {"id": volume, "name": name, "size_gb": size_gb}
        return decode(Volume, (await self._mutate(documents.UPDATE_VOLUME, given))["volume"])

    async def delete_volume(self, volume: str) -> Volume:
        """Delete a network volume with its data."""
        return decode(Volume, (await self._mutate(documents.DELETE_VOLUME, {"id": volume}))["volume"])

    async def budgets(self) -> AsyncIterator[Budget]:
        """Budgets of the project, with what is spent and left."""
        async for node in self._pages(documents.BUDGETS, {}):
            yield decode(Budget, node)

    async def create_budget(self, **arguments: Unpack[BudgetArguments]) -> Budget:
        """Limit what is spent; needs ADMIN."""
        given = {"idempotency_key": new_key(), **arguments}
        return decode(Budget, (await self._mutate(documents.CREATE_BUDGET, given))["budget"])

    async def delete_budget(self, budget: str) -> None:
        """Remove a budget; needs ADMIN."""
        await self._remove(documents.DELETE_BUDGET, budget)

    async def tokens(self) -> AsyncIterator[Token]:
        """The tokens of the project; needs ADMIN."""
        async for node in self._pages(documents.TOKENS, {}):
            yield decode(Token, node)

    async def revoke_token(self, token: str) -> None:
        """End a token for good; needs ADMIN."""
        await self._mutate(documents.REVOKE_TOKEN, {"id": token})

    async def aclose(self) -> None:
        """End the connections."""
        await self._executor.close()

    async def _pages(self, document: str, variables: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        after = None
        while True:
            page = (await self._executor.execute(document, {**variables, "after": after}))["page"]
            for node in page["nodes"]:
                yield node
            if not page["pageInfo"]["hasNextPage"]:
                return
            after = page["pageInfo"]["endCursor"]

    async def _act(self, document: str, instance: str, arguments: Mapping[str, Any]) -> Accepted:
        given = {"idempotency_key": new_key(), **arguments}
        return Accepted.of(await self._mutate_instance(document, instance, given))

    async def _mutate_instance(self, document: str, instance: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A name goes to the server as it is: a repeated request finds its first result also if the name has gone."""
        reference = {"id" if INSTANCE_ID.fullmatch(instance) else "name": instance}
        try:
            return await self._mutate(document, {**given, "instance": reference})
        except Refused as refused:
            if "name" in reference and refused.code == "INSTANCE_NOT_FOUND":
                raise NotFound(f"there is no instance {instance!r}") from None
            raise

    async def _accept(self, document: str, given: Mapping[str, Any]) -> Accepted:
        return Accepted.of(await self._mutate(document, given))

    async def _remove(self, document: str, id: str) -> None:
        """Sent again after a lost response, it may be gone already: then it was removed."""
        try:
            await self._mutate(document, {"id": id}, is_repeatable=False)
        except Unreachable:
            try:
                await self._mutate(document, {"id": id})
            except Refused as refused:
                if not refused.code.endswith("_NOT_FOUND"):
                    raise

    async def _mutate(self, document: str, given: Mapping[str, Any], *, is_repeatable: bool = True) -> dict[str, Any]:
        variables = {"input": encode_fields(given)}
        data = await self._executor.execute(document, variables, is_repeatable=is_repeatable)
        payload: dict[str, Any] = data["payload"]
        if payload["errors"]:
            raise Refused([decode_error(error) for error in payload["errors"]])
        return payload

    async def _id_of(self, instance: str) -> str:
        return instance if INSTANCE_ID.fullmatch(instance) else (await self.get(instance)).id


def new_key() -> str:
    """An idempotency key."""
    return str(uuid.uuid4())
