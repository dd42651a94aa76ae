"""Mutations: extendLifetime, heartbeat, setLifetimePolicy."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema.context import Info
from schema.errors import Payload
from schema.inputs import KEY, VERSION, Input, MutationInput, TargetInput
from schema.mutations.account import REPLAYED
from schema.mutations.payloads import instance_id_of
from schema.permissions import Requires, mutation
from schema.types.instance import Instance
from schema.types.lifetime import IdleInput, LifetimePolicy
from server.enums import Role
from server.instances.limits.policy import Policy, set_policy
from server.lifetimes.extend import Extension, extend_lifetime


@strawberry.input(description="A later end. Give exactly one of `by` and `until`.")
class ExtendLifetimeInput(TargetInput):
    by: timedelta | None = strawberry.field(
        default=None, description="Time to add to the earliest of its ends, or to now if that has passed."
    )
    until: datetime | None = strawberry.field(default=None, description="New end.")
    expected_version: int | None = strawberry.field(default=None, description=VERSION)
    idempotency_key: str | None = strawberry.field(default=None, description=KEY)


@strawberry.type(description="The instance with its later end.")
class ExtendLifetimePayload(Payload):
    instance: Instance | None = strawberry.field(default=None, description="The instance after this change.")
    replayed: bool = strawberry.field(default=False, description=REPLAYED)


@strawberry.input(description="The instance that is in use.")
class HeartbeatInput(TargetInput):
    pass


@strawberry.type(description="Result of a heartbeat.")
class HeartbeatPayload(Payload):
    next_at: datetime | None = strawberry.field(
        default=None, description="When the next one has to be there; null without that limit or without a machine yet."
    )


@strawberry.input(description="The project's rules for lifetimes; they replace the present ones.")
class SetLifetimePolicyInput(MutationInput):
    required: bool = strawberry.field(
        default=False, description="Whether create and start need maxDuration or deadline."
    )
    max_duration_at_most: timedelta | None = strawberry.field(
        default=None, description="Longest run, 300 s to 90 days; bounds maxDuration and deadline."
    )
    default_max_duration: timedelta | None = strawberry.field(
        default=None, description="Longest run of requests that give neither maxDuration nor deadline."
    )
    default_idle: IdleInput | None = strawberry.field(
        default=None, description="Idle limit of requests that give none."
    )


@strawberry.type(description="The project's rules for lifetimes.")
class SetLifetimePolicyPayload(Payload):
    policy: LifetimePolicy | None = strawberry.field(default=None, description="The rules from now on.")


@strawberry.type
class LifetimeMutations:
    @mutation(
        "Move the ends of maxDuration and deadline to a later time, never to an earlier one; counts as a "
        "heartbeat. Works while an operation is in progress and creates none. An accepted extension always holds."
    )
    async def extend_lifetime(self, info: Info, input: Annotated[ExtendLifetimeInput, Input]) -> ExtendLifetimePayload:
        extension = Extension(input.by, input.until, input.expected_version)
        database = info.context.services.database
        extended = await extend_lifetime(
            database, input.target(), extension, by=info.context.caller, key=input.idempotency_key
        )
        instance = None if extended.row is None else Instance.of(extended.row)
        return ExtendLifetimePayload(instance=instance, replayed=extended.replayed)

    @mutation(
        "Say that an instance is in use: the limit `heartbeat` counts from now, and it is not idle. Writes "
        "no event and no version."
    )
    async def heartbeat(self, info: Info, input: Annotated[HeartbeatInput, Input]) -> HeartbeatPayload:
        instance_id = await instance_id_of(info, input.target())
        beat = await info.context.services.heartbeats.beat(instance_id, by=info.context.caller)
        return HeartbeatPayload(next_at=beat.next_at)

    @mutation(
        "Set the project's rules for lifetimes. Lifetimes that were accepted before stay as they are.",
        Requires(Role.ADMIN),
    )
    async def set_lifetime_policy(
        self, info: Info, input: Annotated[SetLifetimePolicyInput, Input]
    ) -> SetLifetimePolicyPayload:
        rules = Policy(
            required=input.required,
            max_duration_at_most=input.max_duration_at_most,
            default_max_duration=input.default_max_duration,
            default_idle=None if input.default_idle is None else input.default_idle.to_domain(),
        )
        async with info.context.write() as session:
            await set_policy(session, info.context.caller.project_id, rules)
        return SetLifetimePolicyPayload(policy=LifetimePolicy.of(rules))
