"""Queries: fleet, the instances merged with the provider's machines; fleetStats, counts and what is billed."""

from typing import Annotated

import strawberry

from schema.context import Info
from schema.filters import InstanceFilter
from schema.inputs import Which
from schema.permissions import query, require_server_admin
from schema.types.fleet import Fleet, FleetStats
from server.events.replay import cursor_now
from server.instances.queries.fleet import fleet, fleet_stats


@strawberry.type
class FleetQueries:
    @query(
        "Instances merged with the provider's list, with all machines that were made for the project. "
        "`includeNovitaOnly` adds machines that were made outside of Pilotlight, and needs the role ADMIN of the "
        "project `default`."
    )
    async def fleet(
        self,
        info: Info,
        include_novita_only: Annotated[
            bool, strawberry.argument(description="Whether to include machines of the account that no project has.")
        ] = False,
    ) -> Fleet:
        services, caller = info.context.services, info.context.caller
        # Machines without an instance belong to the account, not to a project.
        if include_novita_only:
            await require_server_admin(info, "includeNovitaOnly")
        merged = await fleet(
            services.database,
            services.provider_reader,
            by=caller,
            include_novita_only=include_novita_only,
        )
        return Fleet.of(merged)

    @query("Instance counts by status and what the provider bills for them now. Also a subscription.")
    async def fleet_stats(self, info: Info, filter: Annotated[InstanceFilter | None, Which] = None) -> FleetStats:
        wanted = (filter or InstanceFilter()).to_domain(info.context.caller)
        async with info.context.read() as session:
            stats = await fleet_stats(session, project_id=info.context.caller.project_id, wanted=wanted)
            return FleetStats.of(stats, info.context.state_cursor(await cursor_now(session)))
