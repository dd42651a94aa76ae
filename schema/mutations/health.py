"""Mutation: checkHealth."""

from datetime import timedelta
from typing import Annotated

import strawberry

from schema.context import Info
from schema.errors import Payload
from schema.inputs import Input, InstanceReference, MutationInput, target_of
from schema.mutations.payloads import instance_id_of
from schema.permissions import mutation
from schema.types.instance import Instance
from server.errors import Invalid, Problem
from server.instances.commands.check_health import ask_for_check, await_check
from server.probes.plan import default_plan

MAX_WAIT = timedelta(seconds=30)


@strawberry.input(description="The instance to check.")
class CheckHealthInput(MutationInput):
    instance: InstanceReference | None = strawberry.field(
        default=None, description="Id or name of the instance. Give exactly one of `instance` and `instanceId`."
    )
    instance_id: strawberry.ID | None = strawberry.field(
        default=None, description="Id of the instance; short for `instance: {id: ...}`."
    )
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
    @mutation(
        "Probe the endpoints of a running instance now. If all respond, an instance that FAILED while its "
        "machine runs becomes READY, and a degraded one is healthy again; otherwise nothing changes but `health`."
    )
    async def check_health(self, info: Info, input: Annotated[CheckHealthInput, Input]) -> CheckHealthPayload:
        if input.wait > MAX_WAIT:
            message = f"It must be 0 to {MAX_WAIT.total_seconds():.0f} seconds."
            raise Invalid([Problem("INVALID_TIMEOUT", message, ("input", "wait"))])
        target = target_of(input.instance, instance_id=input.instance_id)
        instance_id = await instance_id_of(info, target)
        database, plan = info.context.services.database, default_plan(info.context.services.settings)
        since = await ask_for_check(database, instance_id, defaults=plan, by=info.context.caller)
        if info.context.is_validate_only:
            return CheckHealthPayload()
        finished = await await_check(database, instance_id, since=since, defaults=plan, timeout=input.wait)
        row = await info.context.loaders.instance.load(instance_id)
        return CheckHealthPayload(instance=None if row is None else Instance.of(row), finished=finished)
