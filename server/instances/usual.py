"""How long creates usually take, remembered for some seconds: an estimate need not be asked for at every create."""

import time
from datetime import timedelta
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from server.db.engine import Database
from server.instances.estimates import MEDIAN_SQL
from server.words import OperationKind

BELIEVED = 5.0  # seconds
MOST = 10_000

MEDIAN = MEDIAN_SQL.format(project_id="$1", kind="$2", product_name="$3", region="$4")

Key = tuple[UUID, str, str]

_remembered: WeakKeyDictionary[Database, dict[Key, tuple[timedelta | None, float]]] = WeakKeyDictionary()


async def usual_create(database: Database, *, project_id: UUID, product_name: str, region: str) -> timedelta | None:
    """The median of the project's last 50 of that product there; None while there is none."""
    known = _remembered.setdefault(database, {})
    key = (project_id, product_name, region)
    found = known.get(key)
    if found is not None and found[1] > time.monotonic():
        return found[0]
    pool = database.raw
    takes: Any = await pool.fetchval(MEDIAN, project_id, OperationKind.CREATE.value, product_name, region)
    if len(known) >= MOST:
        known.clear()
    known[key] = (takes, time.monotonic() + BELIEVED)
    return takes
