"""Finds a machine by its marker, without trusting the provider's name filter before it has been proved.

How the filter matches (inside a name, only its beginning, or all of it) is undocumented. If it misses a machine, a
create would be sent twice. So the filter may say "absent" only after it has found a machine that is known to exist by
the same kind of marker; until then the whole list is read.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from server.instances.markers import marker_of
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.novita.transport.concurrency import CallPriority

# The provider may change while a process runs.
PROOF_LIFETIME = timedelta(minutes=30)


class MarkerLookup:
    """One per process. Raises NovitaError if the provider can't be asked or its list is incomplete."""

    def __init__(self, novita: NovitaClient) -> None:
        self._novita = novita
        self._finds: bool | None = None  # whether the filter finds markers; None: not known
        self._known_until = 0.0

    async def find(self, marker: str) -> RemoteInstance | None:
        """The machine with this marker; None only if the provider certainly lists none."""
        return next(iter(await self._find(marker)), None)

    async def find_create(self, create_part: str) -> Sequence[RemoteInstance]:
        """The machines of all attempts of one create: their markers begin with `create_part`."""
        return await self._find(create_part)

    async def _find(self, start: str) -> Sequence[RemoteInstance]:
        if time.monotonic() > self._known_until:
            self._finds = None
        if self._finds is not False:
            found = _marked(await self._list(name=start), start)
            if found or self._finds:
                return found
        machines = await self._list()
        found = _marked(machines, start)
        if not found and self._finds is None:
            await self._prove(machines)
        return found

    async def _prove(self, machines: Iterable[RemoteInstance]) -> None:
        """Look a machine up that the list has just shown; any marker will do, also one of another installation."""
        known = next((found for each in machines if (found := marker_of(each.name)) is not None), None)
        if known is not None:
            self._finds = bool(_marked(await self._list(name=known), known))
            self._known_until = time.monotonic() + PROOF_LIFETIME.total_seconds()

    async def _list(self, name: str | None = None) -> list[RemoteInstance]:
        return await self._novita.all_instances(name=name, must_be_complete=True, priority=CallPriority.USER)


def _marked(machines: Iterable[RemoteInstance], start: str) -> Sequence[RemoteInstance]:
    """The end of the name is compared, not all of it: the instance may have been renamed."""
    return [each for each in machines if (marker_of(each.name) or "").startswith(start)]
