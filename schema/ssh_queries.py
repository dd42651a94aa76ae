"""How to log in: the one query whose answer is a secret."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.guards import Requires
from schema.types.ssh import SshAccess
from server.errors import NotFound
from server.words import Role


@strawberry.type
class SshQueries:
    @strawberry.field(
        description="How to log in to an instance, asked of the provider now; null when there is none of that id, or "
        "its machine does not run. Needs the role OPERATOR.",
        extensions=[Requires(Role.OPERATOR)],
    )
    async def ssh_access(
        self,
        info: Info,
        instance_id: Annotated[strawberry.ID, strawberry.argument(description="The id of the instance.")],
    ) -> SshAccess | None:
        try:
            row = await info.context.loaders.instance.load(ids.read(ids.INSTANCE, instance_id))
        except NotFound:
            return None
        access = None if row is None else await info.context.services.watch.ssh_access(row)
        return None if access is None else SshAccess.of(access)
