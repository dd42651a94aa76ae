"""Mutation: checkHealth."""

from datetime import timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.errors import Payload, RefusalsAsErrors
from schema.inputs import Input, MutationInput
from schema.permissions import Requires
from schema.types.instance import Instance
from server.enums import Role
from server.errors import Invalid, Problem
from server.instances.commands.check_health import ask_for_check, await_check
from server.probes.plan import default_plan

MAX_WAIT = timedelta(seconds=30)


@strawberry.input(description="The instance to check.")
class CheckHealthInput(MutationInput):
    instance_id: strawberry.ID = strawberry.field(description="Id of the instance.")
    wait: timedelta = strawberry.field(
        default=timedelta(seconds=10),
        description="How long to wait for the result, 0 to 30 s. The check continues after that.",
    )


@strawberry.type(description="Result of the health check.")
class CheckHealthPayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance with its health.")
    finished: bool = strawberry.field(
        default=False, description="Whether `health` is the result of this check. If false, query it again later."
    )


@strawberry.type
class HealthMutations:
    @strawberry.mutation(
        description="Probe the endpoints of a running instance now. If all respond, an instance that FAILED while its "
        "machine runs becomes READY, and a degraded one is healthy again; otherwise nothing changes but `health`.",
        extensions=[Requires(Role.OPERATOR), RefusalsAsErrors()],
    )
    async def check_health(self, info: Info, input: Annotated[CheckHealthInput, Input]) -> CheckHealthPayload:
        if input.wait > MAX_WAIT:
            message = f"It must be 0 to {MAX_WAIT.total_seconds():.0f} seconds."
            raise Invalid([Problem("INVALID_TIMEOUT", message, ("input", "wait"))])
        instance_id = ids.parse(ids.INSTANCE, input.instance_id, ("input", "instanceId"))
        database, plan = info.context.services.database, default_plan(info.context.services.settings)
        since = await ask_for_check(database, instance_id, defaults=plan, by=info.context.caller)
        if info.context.is_validate_only:
            return CheckHealthPayload()
        finished = await await_check(database, instance_id, since=since, defaults=plan, timeout=input.wait)
        row = await info.context.loaders.instance.load(instance_id)
        return CheckHealthPayload(instance=None if row is None else Instance.of(row), finished=finished)
