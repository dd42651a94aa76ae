"""What callers can ask of webhooks, and of an instance's health."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.arguments import Input
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.guards import Requires
from schema.inputs import MutationInput
from schema.types.instance import Instance
from schema.types.webhook import WebhookDelivery
from server.clock import now
from server.errors import Invalid, Problem, Refused
from server.instances.health import ask_for_check, await_check
from server.jobs.check_health import default_plan
from server.webhooks import deliveries, secrets, sign
from server.webhooks.url import url_problem
from server.words import Role

LONGEST_OVERLAP = timedelta(days=7)
LONGEST_WAIT = timedelta(seconds=30)


@strawberry.input(description="The secret to replace: your project's.")
class RotateWebhookSecretInput(MutationInput):
    overlap: timedelta = strawberry.field(
        default=timedelta(days=1),
        description="How long messages are signed with both, at most a week. 0 when the old one has leaked.",
    )


@strawberry.type(description="The new secret.")
class RotateWebhookSecretPayload(Payload):
    secret: str | None = strawberry.field(
        default=None,
        description="The secret: whsec_ and the key in base64, as libraries for Standard Webhooks take it.",
    )
    old_secret_valid_until: datetime | None = strawberry.field(
        default=None, description="Until when the one before signs as well."
    )


@strawberry.input(description="The delivery to send again.")
class RedeliverWebhookInput(MutationInput):
    id: strawberry.ID = strawberry.field(description="Its id.")


@strawberry.type(description="The delivery that will be sent again.")
class RedeliverWebhookPayload(Payload):
    delivery: WebhookDelivery | None = strawberry.field(default=None, description="The delivery, PENDING.")


@strawberry.input(description="The receiver to try.")
class TestWebhookInput(MutationInput):
    url: str = strawberry.field(description="http or https.")


@strawberry.type(description="The message that will be sent, once.")
class TestWebhookPayload(Payload):
    delivery: WebhookDelivery | None = strawberry.field(
        default=None, description="Of type webhook.test. Ask for it again to see what came of it."
    )


@strawberry.input(description="The instance to check.")
class CheckHealthInput(MutationInput):
    instance_id: strawberry.ID = strawberry.field(description="Its id.")
    wait: timedelta = strawberry.field(
        default=timedelta(seconds=10),
        description="How long to wait for what is found, 0 to 30 s; the check goes on all the same.",
    )


@strawberry.type(description="What was found.")
class CheckHealthPayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance, its health included.")
    finished: bool = strawberry.field(
        default=False, description="Whether the health is that of this check. If not, ask for it again later."
    )


@strawberry.type
class WebhookMutations:
    @strawberry.mutation(
        description="Make a new secret for signing webhooks. It is shown only here. Every project has one from its "
        "first message on; nobody knows it until this was called.",
        extensions=[Requires(Role.ADMIN), RefusalsAsErrors()],
    )
    async def rotate_webhook_secret(
        self, info: Info, input: Annotated[RotateWebhookSecretInput | None, Input] = None
    ) -> RotateWebhookSecretPayload:
        overlap = (input or RotateWebhookSecretInput()).overlap
        if overlap > LONGEST_OVERLAP:
            path = ("input", "overlap")
            raise Invalid([Problem("INVALID_OVERLAP", "It must not be longer than a week.", path)])
        key = info.context.services.webhook_key
        if key is None:
            raise Refused("SIGNING_KEY_MISSING", "The server has no WEBHOOK_SIGNING_KEY to make secrets with.")
        async with info.context.write() as session:
            secret = await secrets.rotate(session, info.context.caller.project_id, key, overlap=overlap)
        return RotateWebhookSecretPayload(secret=sign.shown(secret), old_secret_valid_until=now() + overlap)

    @strawberry.mutation(
        description="Send a delivery once more, with the same id and body. One that is PENDING keeps its place in "
        "line, and the line waits no longer for its next attempt.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def redeliver_webhook(
        self, info: Info, input: Annotated[RedeliverWebhookInput, Input]
    ) -> RedeliverWebhookPayload:
        delivery_id = ids.read(ids.DELIVERY, input.id, ("input", "id"))
        async with info.context.write() as session:
            row = await deliveries.redeliver(session, delivery_id, project_id=info.context.caller.project_id)
        return RedeliverWebhookPayload(delivery=WebhookDelivery.of(row))

    @strawberry.mutation(
        description="Send a signed message that tells of nothing to a receiver, once.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def test_webhook(self, info: Info, input: Annotated[TestWebhookInput, Input]) -> TestWebhookPayload:
        problem = url_problem(input.url, info.context.services.settings.allow_private_webhooks)
        if problem is not None:
            raise Invalid([Problem("INVALID_WEBHOOK_URL", problem, ("input", "url"))])
        async with info.context.write() as session:
            row = await deliveries.deliver_test(session, info.context.caller.project_id, input.url)
        return TestWebhookPayload(delivery=WebhookDelivery.of(row))

    @strawberry.mutation(
        description="Probe the endpoints of an instance that runs, now. Its status stays what it is.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def check_health(self, info: Info, input: Annotated[CheckHealthInput, Input]) -> CheckHealthPayload:
        if input.wait > LONGEST_WAIT:
            message = f"It must be 0 to {LONGEST_WAIT.total_seconds():.0f} seconds."
            raise Invalid([Problem("INVALID_TIMEOUT", message, ("input", "wait"))])
        instance_id = ids.read(ids.INSTANCE, input.instance_id, ("input", "instanceId"))
        database, plan = info.context.services.database, default_plan(info.context.services.settings)
        since = await ask_for_check(database, instance_id, defaults=plan, by=info.context.caller)
        if info.context.is_rehearsal:
            return CheckHealthPayload()
        finished = await await_check(database, instance_id, since=since, defaults=plan, timeout=input.wait)
        row = await info.context.loaders.instance.load(instance_id)
        return CheckHealthPayload(instance=None if row is None else Instance.of(row), finished=finished)
