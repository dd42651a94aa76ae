"""Queries: sshAccess, instanceAccess, instanceLog: read live from the provider, for OPERATORs."""

from typing import Annotated

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.context import Info
from schema.permissions import Requires, query
from schema.types.instance import SshAccess
from schema.types.log import InstanceAccess, InstanceLog
from server.db.tables import InstanceLike
from server.enums import Role
from server.errors import NotFound
from server.instances.queries.access import instance_access
from server.instances.queries.log import LogKind, log_address

TAIL_MAX = 10_000

InstanceId = Annotated[strawberry.ID, strawberry.argument(description="Id of the instance.")]
WhichLog = Annotated[LogKind, strawberry.argument(description="The container's output or the provider's log.")]
TailLines = Annotated[int, strawberry.argument(description="At most this many of the last lines, 1 to 10000.")]


@strawberry.type
class AccessQueries:
    @query(
        "SSH access to an instance, read from the provider now; null if not found or not running. "
        "Needs the role OPERATOR.",
        Requires(Role.OPERATOR),
    )
    async def ssh_access(self, info: Info, instance_id: InstanceId) -> SshAccess | None:
        row = await find_row(info, instance_id)
        if row is None:
            return None
        access = await instance_access(info.context.services.provider_reader, row, by=info.context.caller)
        return None if access is None or access.ssh is None else SshAccess.of(access.ssh)

    @query(
        "SSH, Jupyter and web terminal of an instance, read from the provider now; null if not found or "
        "not running. Needs the role OPERATOR.",
        Requires(Role.OPERATOR),
    )
    async def instance_access(self, info: Info, instance_id: InstanceId) -> InstanceAccess | None:
        row = await find_row(info, instance_id)
        if row is None:
            return None
        access = await instance_access(info.context.services.provider_reader, row, by=info.context.caller)
        return None if access is None else InstanceAccess.of(access)

    @query(
        "The end of a log, read from the provider now, at most 1 MiB; null if not found or without a "
        "machine. Needs the role OPERATOR. Also a subscription.",
        Requires(Role.OPERATOR),
    )
    async def instance_log(
        self, info: Info, instance_id: InstanceId, which: WhichLog = LogKind.CONTAINER, tail: TailLines = 200
    ) -> InstanceLog | None:
        services = info.context.services
        check_tail(tail)
        row = await find_row(info, instance_id)
        if row is None:
            return None
        address = await log_address(services.provider_reader, row, which, by=info.context.caller)
        if address is None:
            return None
        return InstanceLog.of((await services.log_reader.read_end(address)).last_lines(tail))


async def find_row(info: Info, instance_id: str) -> InstanceLike | None:
    try:
        return await info.context.loaders.instance.load(ids.parse(ids.INSTANCE, instance_id))
    except NotFound:
        return None


def check_tail(tail: int) -> None:
    if not 1 <= tail <= TAIL_MAX:
        message = f"`tail` must be 1 to {TAIL_MAX}."
        raise GraphQLError(message, extensions={"code": "INVALID_LIMIT", "retryable": False})
