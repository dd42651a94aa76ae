"""Mutations: createAlert, deleteAlert."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import KEY, Input, MoneyInput, MutationInput
from schema.mutations.account import REPLAYED
from schema.permissions import mutation
from schema.types.market.alert import MarketAlert
from schema.types.money import MICROS_PER_E5, BillingMode
from server.errors import Problem
from server.market import alerts
from server.market.alerts import INVALID_ALERT, AlertDraft
from server.ssrf import PrivateAddresses
from server.webhooks.urls import url_problem


@strawberry.input(description="The alert to create; an offer must match all given conditions.")
class CreateAlertInput(MutationInput):
    product_names: list[str] | None = strawberry.field(
        default=None, description="Any of these products, by their whole name, 1 to 100. Default: any at all."
    )
    regions: list[str] | None = strawberry.field(
        default=None, description="Any of these region codes, 1 to 100. Default: any at all."
    )
    billing_modes: list[BillingMode] | None = strawberry.field(
        default=None, description="SPOT, ON_DEMAND or both. Default: both."
    )
    gpu_count: int = strawberry.field(default=1, description="GPUs of one machine, 1 to 8; 0 for CPU products.")
    price_at_most: MoneyInput | None = strawberry.field(
        default=None, description="Highest price of the whole machine per hour. Default: any."
    )
    held_for: timedelta = strawberry.field(
        default=timedelta(seconds=30), description="How long an offer must match before the alert fires: 0 to 86400 s."
    )
    cooldown: timedelta = strawberry.field(
        default=timedelta(hours=1), description="Shortest time between two times that it fires: 0 to 2592000 s."
    )
    expires_at: datetime | None = strawberry.field(default=None, description="When it ends. Default: never.")
    webhook_url: str | None = strawberry.field(
        default=None, description="URL that receives its events as signed webhooks: http or https, publicly reachable."
    )
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)

    def to_draft(self, private_addresses: PrivateAddresses) -> AlertDraft:
        price = self.price_at_most
        return AlertDraft(
            product_names=None if self.product_names is None else tuple(self.product_names),
            regions=None if self.regions is None else tuple(self.regions),
            modes=None if self.billing_modes is None else tuple(mode.value for mode in self.billing_modes),
            gpu_count=self.gpu_count,
            price_at_most_e5=None if price is None else price.amount_micros // MICROS_PER_E5,
            held_for=self.held_for,
            cooldown=self.cooldown,
            expires_at=self.expires_at,
            webhook_url=self.webhook_url,
            idempotency_key=self.idempotency_key,
            unreadable=tuple(self._unreadable(private_addresses)),
        )

    def _unreadable(self, private_addresses: PrivateAddresses) -> Iterator[Problem]:
        if self.price_at_most is not None and self.price_at_most.currency != "USD":
            path = ("input", "priceAtMost", "currency")
            yield Problem(INVALID_ALERT, "The provider bills in USD.", path)
        problem = None if self.webhook_url is None else url_problem(self.webhook_url, private_addresses)
        if problem is not None:
            yield Problem("INVALID_WEBHOOK_URL", problem, ("input", "webhookUrl"))


@strawberry.type(description="The new alert.")
class CreateAlertPayload(Payload):
    alert: MarketAlert | None = strawberry.field(default=None, description="The alert; null if deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The alert to delete.")
class DeleteAlertInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the alert.")


@strawberry.type(description="The deleted alert.")
class DeleteAlertPayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the alert.")


@strawberry.type
class AlertMutations:
    @mutation(
        "Announce offers that begin to match and do so for a while, as events `market.alert`. Offers that "
        "match already begin now. A project has at most 100."
    )
    async def create_alert(self, info: Info, input: Annotated[CreateAlertInput, Input]) -> CreateAlertPayload:
        services = info.context.services
        draft = input.to_draft(services.settings.allow_private_webhooks)
        created = await alerts.create_alert(services.database, draft, by=info.context.caller)
        alert = None if created.row is None else MarketAlert.of(created.row)
        return CreateAlertPayload(alert=alert, replayed=created.replayed)

    @mutation("Delete an alert. It does not fire any more.")
    async def delete_alert(self, info: Info, input: Annotated[DeleteAlertInput, Input]) -> DeleteAlertPayload:
        alert_id = ids.parse(ids.ALERT, input.id, ("input", "id"))
        async with info.context.write() as session:
            await alerts.delete_alert(session, alert_id, project_id=info.context.caller.project_id)
        return DeleteAlertPayload(deleted_id=input.id)
