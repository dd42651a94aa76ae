"""Mutations: createWebhook, deleteWebhook, rotateWebhookSecret, redeliverWebhook, testWebhook."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload
from schema.inputs import KEY, Input, MutationInput
from schema.mutations.account import REPLAYED
from schema.permissions import Requires, mutation
from schema.types.event import ALL_TYPES
from schema.types.webhook import ProjectWebhook, WebhookDelivery
from server.clock import now
from server.enums import Role
from server.errors import Invalid, NotFound, Problem, Refused
from server.webhooks import deliveries, project_webhooks, signing
from server.webhooks.urls import url_problem

MAX_OVERLAP = timedelta(days=7)


@strawberry.input(description="The webhook of the project to create.")
class CreateWebhookInput(MutationInput):
    url: str = strawberry.field(description="URL of the receiver, http or https.")
    types: list[str] = strawberry.field(description=f"Event types, at least one of: {ALL_TYPES}.")
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The new webhook of the project.")
class CreateWebhookPayload(Payload):
    webhook: ProjectWebhook | None = strawberry.field(default=None, description="The webhook; null if deleted since.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The webhook of the project to delete.")
class DeleteWebhookInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the webhook.")


@strawberry.type(description="The deleted webhook of the project.")
class DeleteWebhookPayload(Payload):
    deleted_id: strawberry.ID | None = strawberry.field(default=None, description="Id of the webhook.")


@strawberry.input(description="Replace the webhook secret of your project.")
class RotateWebhookSecretInput(MutationInput):
    overlap: timedelta = strawberry.field(
        default=timedelta(days=1),
        description="How long messages are signed with both secrets, at most a week. Use 0 if the old secret has "
        "leaked.",
    )


@strawberry.type(description="The new secret.")
class RotateWebhookSecretPayload(Payload):
    secret: str | None = strawberry.field(
        default=None,
        description="The secret: whsec_ and the key in base64, as Standard Webhooks libraries expect it.",
    )
    old_secret_valid_until: datetime | None = strawberry.field(
        default=None, description="End of the time in which the old secret also signs."
    )


@strawberry.input(description="The delivery to send again.")
class RedeliverWebhookInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Id of the delivery.")


@strawberry.type(description="The delivery to be sent again.")
class RedeliverWebhookPayload(Payload):
    delivery: WebhookDelivery | None = strawberry.field(default=None, description="The delivery, PENDING.")


@strawberry.input(description="The webhook URL to test.")
class TestWebhookInput(MutationInput):
    url: str = strawberry.field(description="URL, http or https.")


@strawberry.type(description="The test message, sent once.")
class TestWebhookPayload(Payload):
    delivery: WebhookDelivery | None = strawberry.field(
        default=None, description="Delivery of type webhook.test. Query it again to see its result."
    )


@strawberry.type
class WebhookMutations:
    @mutation(
        "Send the project's events of some types to a URL, beside the webhooks of single instances. A "
        "project has at most 20.",
        Requires(Role.ADMIN),
    )
    async def create_webhook(self, info: Info, input: Annotated[CreateWebhookInput, Input]) -> CreateWebhookPayload:
        services = info.context.services
        created = await project_webhooks.create_webhook(
            services.database,
            project_webhooks.WebhookDraft(input.url, tuple(input.types), input.idempotency_key),
            by=info.context.caller,
            private_addresses=services.settings.allow_private_webhooks,
        )
        webhook = None if created.row is None else ProjectWebhook.of(created.row)
        return CreateWebhookPayload(webhook=webhook, replayed=created.replayed)

    @mutation(
        "Delete a webhook of the project. Messages that were not delivered yet are not sent.", Requires(Role.ADMIN)
    )
    async def delete_webhook(self, info: Info, input: Annotated[DeleteWebhookInput, Input]) -> DeleteWebhookPayload:
        webhook_id = ids.parse(ids.WEBHOOK, input.id, ("input", "id"))
        async with info.context.write() as session:
            await project_webhooks.delete_webhook(session, webhook_id, project_id=info.context.caller.project_id)
        return DeleteWebhookPayload(deleted_id=input.id)

    @mutation(
        "Create a new secret for signing webhooks. It is returned only once. Call it once to learn your "
        "project's secret: the initial one is never shown.",
        Requires(Role.ADMIN),
    )
    async def rotate_webhook_secret(
        self, info: Info, input: Annotated[RotateWebhookSecretInput | None, Input] = None
    ) -> RotateWebhookSecretPayload:
        overlap = (input or RotateWebhookSecretInput()).overlap
        if overlap > MAX_OVERLAP:
            path = ("input", "overlap")
            raise Invalid([Problem("INVALID_OVERLAP", "It must be at most a week.", path)])
        key = info.context.services.webhook_key
        if key is None:
            raise Refused(
                "SIGNING_KEY_MISSING", "The server has no WEBHOOK_SIGNING_KEY, which is needed to create secrets."
            )
        async with info.context.write() as session:
            secret = await signing.rotate(session, info.context.caller.project_id, key, overlap=overlap)
        return RotateWebhookSecretPayload(secret=signing.format_secret(secret), old_secret_valid_until=now() + overlap)

    @mutation(
        "Send a delivery again, with the same id and body. A PENDING delivery keeps its place in the "
        "queue and is retried without delay."
    )
    async def redeliver_webhook(
        self, info: Info, input: Annotated[RedeliverWebhookInput, Input]
    ) -> RedeliverWebhookPayload:
        delivery_id = ids.parse(ids.DELIVERY, input.id, ("input", "id"))
        if await info.context.loaders.delivery.load(delivery_id) is None:
            raise NotFound("delivery", ("input", "id"))
        async with info.context.write() as session:
            row = await deliveries.redeliver(session, delivery_id, project_id=info.context.caller.project_id)
        return RedeliverWebhookPayload(delivery=WebhookDelivery.of(row))

    @mutation("Send a signed test message to a URL, once.")
    async def test_webhook(self, info: Info, input: Annotated[TestWebhookInput, Input]) -> TestWebhookPayload:
        problem = url_problem(input.url, info.context.services.settings.allow_private_webhooks)
        if problem is not None:
            raise Invalid([Problem("INVALID_WEBHOOK_URL", problem, ("input", "url"))])
        async with info.context.write() as session:
            row = await deliveries.insert_test_delivery(session, info.context.caller.project_id, input.url)
        return TestWebhookPayload(delivery=WebhookDelivery.of(row))
