"""The whole fleet, ours and the provider's."""

from typing import Annotated

import strawberry

from schema.context import Info
from schema.guards import Requires, refuse_unless_running_the_server
from schema.types.fleet import Fleet
from server.instances.fleet import fleet
from server.words import Role


@strawberry.type
class FleetQueries:
    @strawberry.field(
        description="Our instances and the provider's list, merged; with includeNovitaOnly also machines that belong "
        "to no instance: that needs the role ADMIN of the project `default`.",
        extensions=[Requires(Role.READER)],
    )
    async def fleet(
        self,
        info: Info,
        include_novita_only: Annotated[
            bool, strawberry.argument(description="Whether to show machines of the account that are no instances, too.")
        ] = False,
    ) -> Fleet:
        services, caller = info.context.services, info.context.caller
        # Those machines are of the account, not of a project.
        if include_novita_only:
            await refuse_unless_running_the_server(info, "includeNovitaOnly")
        found = await fleet(
            services.database,
            services.watch,
            project_id=caller.project_id,
            include_novita_only=include_novita_only,
        )
        return Fleet.of(found)
