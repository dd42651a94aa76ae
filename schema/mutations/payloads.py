"""Payloads of mutations that start an operation on an instance."""

from typing import Any, Self
from uuid import UUID

import strawberry
import structlog

from schema.context import Info
from schema.errors import Payload
from schema.lazy_instance import LazyInstance
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.instances.commands.lifecycle import Target, find_target
from server.instances.idempotency import Accepted

log = structlog.get_logger(__name__)


@strawberry.type
class AcceptedInstance:
    instance: Instance | None = strawberry.field(default=None, description="The instance after this change.")
    operation: Operation | None = strawberry.field(default=None, description="The operation; follow it to its end.")
    replayed: bool = strawberry.field(
        default=False, description="Whether this is the stored result of an earlier request with the same key."
    )

    @classmethod
    def of(cls, accepted: Accepted, info: Info, **more: Any) -> Self:
        if not info.context.is_validate_only:
            # Connects the request with its operation and instance; the jobs log only the latter two.
            log.info(
                "operation.accepted",
                kind=accepted.operation.kind,
                operation_id=accepted.operation.id,
                instance_id=accepted.operation.instance_id,
                token_id=accepted.operation.requested_by,
                replayed=accepted.replayed,
            )
        return cls(
            instance=LazyInstance(accepted.instance),
            operation=Operation.of(accepted.operation),
            replayed=accepted.replayed,
            **more,
        )


@strawberry.type
class InstancePayload(AcceptedInstance, Payload):
    pass


async def instance_id_of(info: Info, target: Target) -> UUID:
    """For mutations without a key, where the name may be looked up first. Raises NotFound."""
    if target.id is not None and info.context.caller.owner_id is None:
        return target.id
    async with info.context.read() as session:
        return (await find_target(session, target, info.context.caller)).id
