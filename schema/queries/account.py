"""Queries of the provider account: account, networks, prewarms, prewarmQuota, providerJobs."""

from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info, visible_to
from schema.inputs import After, First
from schema.permissions import RequiresServerAdmin, query
from schema.types.account import (
    AccountInfo,
    Network,
    NetworkConnection,
    NetworkEdge,
    Prewarm,
    PrewarmConnection,
    PrewarmEdge,
    PrewarmQuota,
)
from schema.types.provider_job import ProviderJob, ProviderJobConnection, ProviderJobEdge
from server.account.balance import read_account
from server.account.prewarms import all_prewarms, prewarm_quota
from server.account.provider_jobs import jobs_of_project
from server.conversion import convert
from server.enums import ProviderObjectKind


@strawberry.type
class AccountQueries:
    @query("The provider account, read live. Needs the role ADMIN of the project `default`.", RequiresServerAdmin())
    async def account(self, info: Info) -> AccountInfo:
        account = info.context.services.account
        account.live_reads.take(info.context.caller)
        return AccountInfo.of(await read_account(account))

    @query("Private networks: the project's own, and those created elsewhere.")
    async def networks(self, info: Info, first: First = 100, after: After = None) -> NetworkConnection:
        services = info.context.services
        clusters, networks = await services.catalog.regions(), await services.catalog.networks()
        return NetworkConnection.page_of(
            await visible_to(info, ProviderObjectKind.NETWORK, networks),
            NetworkEdge,
            lambda network: Network.of(network, clusters),
            key=lambda network: network.id,
            first=first,
            after=after,
        )

    @query("Prewarmed images, newest first: the project's own, and those created elsewhere. Read live.")
    async def prewarms(self, info: Info, first: First = 100, after: After = None) -> PrewarmConnection:
        services = info.context.services
        services.account.live_reads.take(info.context.caller)
        clusters, tasks = await services.catalog.regions(), await all_prewarms(services.account)
        return PrewarmConnection.page_of(
            await visible_to(info, ProviderObjectKind.PREWARM, tasks),
            PrewarmEdge,
            lambda task: Prewarm.of(task, clusters),
            key=lambda task: task.id,
            first=first,
            after=after,
        )

    @query("How many images the account may prewarm, all projects together. Read live.")
    async def prewarm_quota(self, info: Info) -> PrewarmQuota:
        account = info.context.services.account
        account.live_reads.take(info.context.caller)
        return convert(PrewarmQuota, await prewarm_quota(account))

    @query(
        "Jobs that the provider runs or ran for the project's machines, newest first: saved images and "
        "migrations. Read live."
    )
    async def provider_jobs(
        self,
        info: Info,
        instance_id: Annotated[
            strawberry.ID | None, strawberry.argument(description="Only those of this instance.")
        ] = None,
        first: First = 100,
        after: After = None,
    ) -> ProviderJobConnection:
        only = None if instance_id is None else ids.parse_or_unused(ids.INSTANCE, instance_id)
        return ProviderJobConnection.page_of(
            await jobs_of_project(info.context.services.account, by=info.context.caller, instance_id=only),
            ProviderJobEdge,
            ProviderJob.of,
            key=lambda owned: owned.job.id,
            first=first,
            after=after,
        )
