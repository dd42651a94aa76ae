"""The synchronous client: AsyncPilotlight in the loop of a thread of its own. Written by `make client`."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

from standardwebhooks import Webhook
from typing_extensions import Self, Unpack

from pilotlight_client.accepted import Accepted
from pilotlight_client.aio import AsyncPilotlight
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
from pilotlight_client.loop_thread import LoopThread
from pilotlight_client.machine import Machine
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


class Pilotlight:
    """A client of one Pilotlight server.

    Without arguments: PILOTLIGHT_URL and PILOTLIGHT_TOKEN, else the current context of `pilotlight context`, else the
    `pilotlight up` of this folder. Every mutation has an idempotency key, made here unless it is given, and is sent
    again with the same key while the server is away, up to `retry_for` seconds.

    An instance is given by its id or its name."""

    def __init__(self, url: str | None = None, token: str | None = None, *, retry_for: float = 60.0) -> None:
        self._thread = LoopThread()
        self._client = self._thread.run(self._make(url, token, retry_for=retry_for))

    @staticmethod
    async def _make(url: str | None = None, token: str | None = None, *, retry_for: float = 60.0) -> AsyncPilotlight:
        return AsyncPilotlight(url, token, retry_for=retry_for)

    def wait(self, operation: str | Operation | Accepted, *, timeout: timedelta | float | None = None) -> Operation:
        """Follow an operation to its end.

        Raises OperationFailed unless it SUCCEEDED, and WaitTimedOut if it has not ended in time: it goes on then."""
        return self._thread.run(self._client.wait(operation, timeout=timeout))

    def follow(self, operation: str, *, timeout: timedelta | float | None = None) -> Iterator[Operation]:
        """The operation now and after every change, until it has ended; WaitTimedOut if that takes too long."""
        return self._thread.iterate(self._client.follow(operation, timeout=timeout))

    def watch(self, instance: str) -> Iterator[Instance]:
        """The instance now and after every change, until it is DELETED."""
        return self._thread.iterate(self._client.watch(instance))

    def events(self, *, after: str | None = None, **arguments: Unpack[EventFilter]) -> Iterator[InstanceEvent]:
        """Every event after the cursor, else from now on: in order, none missing, none twice, for ever."""
        return self._thread.iterate(self._client.events(after=after, **arguments))

    def follow_log(
        self, instance: str, *, which: Literal["CONTAINER", "SYSTEM"] = "CONTAINER", tail: int = 200
    ) -> Iterator[str]:
        """The last lines of a log, at most 200, then what is added, until the connection ends."""
        return self._thread.iterate(self._client.follow_log(instance, which=which, tail=tail))

    @contextmanager
    def instance(self, **arguments: Unpack[CreateArguments]) -> Generator[Machine, None, None]:
        """An instance for the length of a block: create, wait until it is READY, send heartbeats, delete.

        A killed program leaves no machine: unless `lifetime` says otherwise, the server deletes the instance after
        120 s without a heartbeat."""
        with self._thread.entered(self._client.instance(**arguments)) as machine:
            yield Machine(machine, self._thread)

    @staticmethod
    def verify_webhook(secret: str, payload: bytes | str, headers: Mapping[str, str]) -> dict[str, Any]:
        """The message of a webhook, if its signature is right; raises standardwebhooks.WebhookVerificationError."""
        return Webhook(secret).verify(payload, dict(headers))

    def create(self, **arguments: Unpack[CreateArguments]) -> Accepted:
        """Request an instance. It exists from now on; follow the operation with `wait`."""
        return self._thread.run(self._client.create(**arguments))

    def check(self, **arguments: Unpack[CreateArguments]) -> None:
        """Raise Refused if `create` would be refused; nothing is written."""
        return self._thread.run(self._client.check(**arguments))

    def quote(self, **arguments: Unpack[QuoteArguments]) -> Quote:
        """What a create would get, and what it costs."""
        return self._thread.run(self._client.quote(**arguments))

    def start(self, instance: str, **arguments: Unpack[StartArguments]) -> Accepted:
        """Start an EXITED instance."""
        return self._thread.run(self._client.start(instance, **arguments))

    def stop(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Stop an instance; its disk is kept and billed."""
        return self._thread.run(self._client.stop(instance, **arguments))

    def restart(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Restart an instance."""
        return self._thread.run(self._client.restart(instance, **arguments))

    def migrate(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Move an instance to another node of its region."""
        return self._thread.run(self._client.migrate(instance, **arguments))

    def delete(self, instance: str, **arguments: Unpack[VerbArguments]) -> Accepted:
        """Delete an instance, whatever it is doing."""
        return self._thread.run(self._client.delete(instance, **arguments))

    def update(self, instance: str, **arguments: Unpack[UpdateArguments]) -> Accepted:
        """Change name, labels, webhook, ports, disk or lifetime."""
        return self._thread.run(self._client.update(instance, **arguments))

    def cancel(self, operation: str) -> Operation:
        """Cancel an operation that is in progress."""
        return self._thread.run(self._client.cancel(operation))

    def extend(
        self,
        instance: str,
        *,
        by: timedelta | float | None = None,
        until: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Instance:
        """Move the end of its lifetime, by some time or to a time."""
        return self._thread.run(self._client.extend(instance, by=by, until=until, idempotency_key=idempotency_key))

    def heartbeat(self, instance: str) -> datetime | None:
        """Say that the instance is in use; returns when the next heartbeat has to be there."""
        return self._thread.run(self._client.heartbeat(instance))

    def get(self, instance: str) -> Instance:
        """One instance; raises NotFound."""
        return self._thread.run(self._client.get(instance))

    def list(self, **arguments: Unpack[ListFilter]) -> Iterator[Instance]:
        """All instances that match, newest first."""
        return self._thread.iterate(self._client.list(**arguments))

    def operation(self, operation: str) -> Operation:
        """One operation; raises NotFound."""
        return self._thread.run(self._client.operation(operation))

    def poll(self, operation: str, *, timeout: timedelta | float) -> Operation:
        """The operation once it has ended, or after the timeout, at most 60 s; unlike `wait` it raises neither."""
        return self._thread.run(self._client.poll(operation, timeout=timeout))

    def event_page(
        self, *, after: str | None = None, first: int = 25, **arguments: Unpack[EventFilter]
    ) -> tuple[Sequence[InstanceEvent], str | None]:
        """Past events after the cursor, oldest first, and the cursor to continue after."""
        return self._thread.run(self._client.event_page(after=after, first=first, **arguments))

    def head(self) -> str:
        """The cursor of the newest event."""
        return self._thread.run(self._client.head())

    def products(self, **arguments: Unpack[ProductArguments]) -> Sequence[Product]:
        """Products with price and stock in every region."""
        return self._thread.run(self._client.products(**arguments))

    def update_wait(self, operation: str, **arguments: Unpack[WaitArguments]) -> Operation:
        """Another end or priority of an operation that may wait for capacity."""
        return self._thread.run(self._client.update_wait(operation, **arguments))

    def market(self, **arguments: Unpack[OfferFilter]) -> Sequence[MarketOffer]:
        """What the provider offers, as last polled: prices of the whole machine, and when it was in stock."""
        return self._thread.run(self._client.market(**arguments))

    def offer_history(
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
        return self._thread.run(
            self._client.offer_history(
                product,
                region=region,
                billing_mode=billing_mode,
                gpu_count=gpu_count,
                since=since,
                until=until,
                bucket=bucket,
            )
        )

    def alerts(self) -> Iterator[MarketAlert]:
        """Alerts of the project on offers."""
        return self._thread.iterate(self._client.alerts())

    def create_alert(self, **arguments: Unpack[AlertArguments]) -> MarketAlert:
        """Announce offers that match, as events `market.alert` and to `webhook_url`."""
        return self._thread.run(self._client.create_alert(**arguments))

    def delete_alert(self, alert: str) -> None:
        """Remove an alert."""
        return self._thread.run(self._client.delete_alert(alert))

    def ssh_access(self, instance: str) -> SshAccess:
        """How to log in, read from the provider now; raises NotFound if it gives no access."""
        return self._thread.run(self._client.ssh_access(instance))

    def log(self, instance: str, *, which: Literal["CONTAINER", "SYSTEM"] = "CONTAINER", tail: int = 200) -> str:
        """The last lines of a log."""
        return self._thread.run(self._client.log(instance, which=which, tail=tail))

    def lifetime_policy(self) -> LifetimePolicy:
        """The project's rules for lifetimes."""
        return self._thread.run(self._client.lifetime_policy())

    def spend(
        self,
        *,
        group_by: Literal["DAY", "INSTANCE", "PRODUCT", "REGION", "TOKEN", "LABEL"] = "DAY",
        label_key: str | None = None,
        **arguments: Unpack[SpendArguments],
    ) -> SpendReport:
        """What was spent, in all and by group."""
        return self._thread.run(self._client.spend(group_by=group_by, label_key=label_key, **arguments))

    def volumes(self, *, region: str | None = None) -> Iterator[Volume]:
        """Network volumes."""
        return self._thread.iterate(self._client.volumes(region=region))

    def create_volume(self, *, name: str, region: str, size_gb: int, idempotency_key: str | None = None) -> Volume:
        """Create a network volume of 10 to 10240 GB."""
        return self._thread.run(
            self._client.create_volume(name=name, region=region, size_gb=size_gb, idempotency_key=idempotency_key)
        )

    def update_volume(self, volume: str, *, name: str | None = None, size_gb: int | None = None) -> Volume:
        """Rename or enlarge a network volume."""
        return self._thread.run(self._client.update_volume(volume, name=name, size_gb=size_gb))

    def delete_volume(self, volume: str) -> Volume:
        """Delete a network volume with its data."""
        return self._thread.run(self._client.delete_volume(volume))

    def budgets(self) -> Iterator[Budget]:
        """Budgets of the project, with what is spent and left."""
        return self._thread.iterate(self._client.budgets())

    def create_budget(self, **arguments: Unpack[BudgetArguments]) -> Budget:
        """Limit what is spent; needs ADMIN."""
        return self._thread.run(self._client.create_budget(**arguments))

    def delete_budget(self, budget: str) -> None:
        """Remove a budget; needs ADMIN."""
        return self._thread.run(self._client.delete_budget(budget))

    def tokens(self) -> Iterator[Token]:
        """The tokens of the project; needs ADMIN."""
        return self._thread.iterate(self._client.tokens())

    def revoke_token(self, token: str) -> None:
        """End a token for good; needs ADMIN."""
        return self._thread.run(self._client.revoke_token(token))

    def close(self) -> None:
        """End the connections and the thread."""
        self._thread.run(self._client.aclose())
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
