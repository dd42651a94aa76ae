"""Who is asking, and whom."""

import strawberry

from schema.context import Info
from schema.filters import MOST
from schema.guards import Requires
from schema.mutations.bulk import MOST as BULK
from schema.node_queries import MOST_NODES
from schema.operation_queries import LONGEST_WAIT
from schema.paging import MAX_PAGE
from schema.types.server import DatabaseInfo, EventLogInfo, ProviderInfo, ServerFeatures, ServerInfo, ServerLimits
from schema.types.token import Project, Token, Viewer
from server.guard import Inside
from server.words import Role


@strawberry.type
class ServerQueries:
    @strawberry.field(
        description="Who is asking: the token, its project and its role.", extensions=[Requires(Role.READER)]
    )
    async def viewer(self, info: Info) -> Viewer:
        caller, loaders = info.context.caller, info.context.loaders
        token, project = await loaders.token.load(caller.token_id), await loaders.project.load(caller.project_id)
        if token is None or project is None:
            raise LookupError("a caller without a token")
        return Viewer(
            token=Token.of(token),
            project=Project.of(project),
            role=caller.role,
            runs_server=await info.context.runs_the_server(),
        )

    @strawberry.field(
        description="The server that answers: its version, the provider, the database, the log, its limits.",
        extensions=[Requires(Role.READER)],
    )
    async def server_info(self, info: Info) -> ServerInfo:
        services = info.context.services
        facts, settings = services.facts, services.settings
        provider, standing = facts.provider, await facts.standing()
        return ServerInfo(
            version=facts.version,
            started_at=facts.started_at,
            uptime=facts.uptime,
            provider=ProviderInfo(
                host=provider.host,
                is_simulator=provider.is_simulator,
                breaker=provider.breaker,
                retry_at=provider.retry_at,
                suspended=list(provider.suspended),
            ),
            database=DatabaseInfo(kind=facts.database_kind, version=standing.database_version),
            event_log=EventLogInfo(
                head=str(standing.head), has_sequencer=standing.has_sequencer, is_followed=facts.is_following
            ),
            workers=standing.workers,
            limits=ServerLimits(
                page_size=MAX_PAGE,
                nodes=MOST_NODES,
                bulk_size=BULK,
                filter_values=MOST,
                await_timeout=LONGEST_WAIT,
                event_retention=settings.event_retention,
                sockets_per_token=settings.sockets_per_token,
            ),
            features=ServerFeatures(
                signs_webhooks=services.webhook_key is not None,
                shares_caches=settings.redis_url is not None,
                private_webhooks=settings.allow_private_webhooks is not Inside.OFF,
            ),
        )
