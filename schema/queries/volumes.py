"""Queries: volumes, unlinkedVolumes."""

from typing import Annotated

import strawberry

from schema.context import Info
from schema.inputs import After, First
from schema.permissions import RequiresServerAdmin, query
from schema.types.money import Money
from schema.types.volume import (
    UnlinkedVolume,
    UnlinkedVolumeConnection,
    UnlinkedVolumeEdge,
    Volume,
    VolumeConnection,
    VolumeEdge,
)
from server.account.volumes import unlinked_volumes
from server.db import tables
from server.db.pages import Where
from server.volumes.price import price_per_hour_e5


@strawberry.type
class VolumeQueries:
    @query("The project's network volumes, newest first; deleted ones are not shown.")
    async def volumes(
        self,
        info: Info,
        region: Annotated[str | None, strawberry.argument(description="Only those in this region.")] = None,
        first: First = 50,
        after: After = None,
    ) -> VolumeConnection:
        where = Where(("status <> 'DELETED'",)).given("project_id = {}", info.context.caller.project_id)
        if region is not None:
            where = where.given("region = {}", region)
        return await VolumeConnection.newest_first(
            info, tables.VolumeRow, where, VolumeEdge, Volume.of, first=first, after=after
        )

    @query(
        "Volumes of the provider account that no project has, read live: they are billed, too. Needs the "
        "role ADMIN of the project `default`.",
        RequiresServerAdmin(),
    )
    async def unlinked_volumes(self, info: Info, first: First = 100, after: After = None) -> UnlinkedVolumeConnection:
        return UnlinkedVolumeConnection.page_of(
            await unlinked_volumes(info.context.services.account, by=info.context.caller),
            UnlinkedVolumeEdge,
            lambda found: UnlinkedVolume(
                novita_id=found.id,
                name=found.name,
                region=found.region,
                size_gb=found.size_gb,
                price_per_hour=Money.of(price_per_hour_e5(found.price_e5, found.size_gb or 0)),
            ),
            key=lambda found: found.id,
            first=first,
            after=after,
        )
