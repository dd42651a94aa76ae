"""The whole fleet, ours and the provider's."""

import strawberry
from graphql import GraphQLError

from schema.context import Info
from schema.guards import Requires
from schema.types.fleet import Fleet
from server.instances.fleet import fleet
from server.words import Role


@strawberry.type
class FleetQueries:
    @strawberry.field(
        description="Our instances and the provider's list, merged; with includeNovitaOnly (role ADMIN) also machines "
        "that belong to no instance.",
        extensions=[Requires(Role.READER)],
    )
    async def fleet(self, info: Info, include_novita_only: bool = False) -> Fleet:
        services, caller = info.context.services, info.context.caller
        # Those machines are of the account, not of a project.
        if include_novita_only and not caller.may(Role.ADMIN):
            message = f"includeNovitaOnly needs a token with the role {Role.ADMIN}."
            raise GraphQLError(message, extensions={"code": "FORBIDDEN", "retryable": False})
        found = await fleet(
            services.database,
            services.watch,
            project_id=caller.project_id,
            include_novita_only=include_novita_only,
        )
        return Fleet.of(found)
