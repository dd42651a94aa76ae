"""Queries: viewer, serverInfo."""

from typing import cast

import strawberry

from schema.context import Context, Info
from schema.filters import MAX_VALUES
from schema.pagination import MAX_PAGE
from schema.permissions import query
from schema.queries.node import MAX_NODES
from schema.queries.operations import MAX_AWAIT_TIMEOUT
from schema.selection import selected_names
from schema.types.server import DatabaseInfo, EventLogInfo, ServerFeatures, ServerInfo, ServerLimits
from schema.types.token import Project, Token, Viewer
from server.events.event import Cursor
from server.instances.queries.bulk import INSTANCES_MAX
from server.server_info import ClusterStatus
from server.ssrf import PrivateAddresses

# Fields that are read from the database, each time: the others are known to the process.
FROM_THE_CLUSTER = frozenset({"callsPerMinute", "database", "eventLog", "workers"})
NOT_READ = ClusterStatus(calls_per_minute=None, database_version="", workers=0, has_sequencer=False, head=Cursor(0, 0))


@strawberry.type
class ServerQueries:
    @query("The caller: token, project and role.")
    def viewer(self, info: Info) -> Viewer:
        caller = info.context.caller
        token, project = caller.token, caller.project
        if token is None or project is None:
            raise LookupError("a caller without a token")
        return Viewer(
            token=Token.of(token),
            project=Project.of(project),
            role=caller.role,
        )

    @query("This server: version, provider, database, event log and limits.")
    def server_info(self, info: Info) -> ServerInfo:
        if FROM_THE_CLUSTER.isdisjoint(selected_names(info)):
            return _shown(info.context, NOT_READ)
        return cast("ServerInfo", _read(info.context))  # the library awaits it


async def _read(context: Context) -> ServerInfo:
    return _shown(context, await context.services.server_info.cluster_status())


def _shown(context: Context, standing: ClusterStatus) -> ServerInfo:
    services = context.services
    facts, settings = services.server_info, services.settings
    return ServerInfo(
        facts=facts,
        cluster=standing,
        version=facts.version,
        started_at=facts.started_at,
        uptime=facts.uptime,
        database=DatabaseInfo(kind=facts.database_kind, version=standing.database_version),
        event_log=EventLogInfo(
            head="" if standing is NOT_READ else context.state_cursor(standing.head),
            has_sequencer=standing.has_sequencer,
            is_followed=facts.is_following,
        ),
        workers=standing.workers,
        limits=ServerLimits(
            page_size=MAX_PAGE,
            nodes=MAX_NODES,
            bulk_size=INSTANCES_MAX,
            filter_values=MAX_VALUES,
            await_timeout=MAX_AWAIT_TIMEOUT,
            event_retention=settings.event_retention,
            sockets_per_token=settings.sockets_per_token,
        ),
        features=ServerFeatures(
            signs_webhooks=services.webhook_key is not None,
            shares_caches=settings.redis_url is not None,
            private_webhooks=settings.allow_private_webhooks is not PrivateAddresses.OFF,
        ),
    )
