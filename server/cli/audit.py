"""`pilotlight audit export`: the audit log as JSON lines."""

import sys
from datetime import UTC, datetime

import orjson

from server.audit.queries import AuditFilter, export_audit
from server.db import migrate


async def export(url: str, *, since: datetime | None, until: datetime | None) -> None:
    async with migrate.open_current(url) as database:
        async for line in export_audit(database, AuditFilter(since=_utc(since), until=_utc(until))):
            sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()


def _utc(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
