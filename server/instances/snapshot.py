"""A row as it stood at one version, in and out of an event.

Events carry the whole picture, so that a thousand watchers of one change cost no query. The environment stays out:
it can be large, and people put secrets into it, as they do into the URLs of webhooks. So do a worker's own notes on an
operation: nobody else needs them.
"""

from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import DateTime, Uuid, inspect

from server.db.tables import Instance, Operation

Row = TypeVar("Row", Instance, Operation)

LEFT_OUT = frozenset({"env", "webhook_url", "asked_at", "before", "wanted"})


def snapshot_of(row: Instance | Operation) -> dict[str, Any]:
    """The columns as JSON can hold them."""
    names = (column.key for column in inspect(type(row)).column_attrs)
    return {name: _plain(getattr(row, name)) for name in names if name not in LEFT_OUT}


def restored(kind: type[Row], snapshot: dict[str, Any]) -> Row:
    """The row again, detached from any session. Columns that are newer than the snapshot are None."""
    row = kind()
    for attribute in inspect(kind).column_attrs:
        if attribute.key in LEFT_OUT:
            continue
        value = snapshot.get(attribute.key)
        column = attribute.columns[0].type
        if value is not None and isinstance(column, DateTime):
            value = datetime.fromisoformat(value)
        elif value is not None and isinstance(column, Uuid):
            value = UUID(value)
        setattr(row, attribute.key, value)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return value
