"""/metrics for Prometheus: what this process counted, and what only the database knows."""

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from server.db.trouble import DATABASE_TROUBLE
from server.queue import metrics
from server.queue.reads import job_stats
from server.runtime import Runtime


class Scrape:
    """Open on loopback; elsewhere it takes a token, since the figures are of all projects."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def answer(self, request: Request) -> Response:
        if not self._runtime.settings.is_loopback and not await self._is_known(request):
            return Response("send a token: Authorization: Bearer pl_...", 401, {"www-authenticate": "Bearer"})
        try:
            async with self._runtime.database.read() as session:
                metrics.show(await job_stats(session))
        except DATABASE_TROUBLE:
            metrics.show_nothing()  # old figures would look like a queue that stands still
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def _is_known(self, request: Request) -> bool:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and await self._runtime.tokens.caller_of(secret.strip()) is not None
