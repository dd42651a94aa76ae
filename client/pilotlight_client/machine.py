"""The instance inside a `with` block."""

import asyncio
from typing import TYPE_CHECKING

from pilotlight_client.errors import PilotlightError
from pilotlight_client.models import Instance

if TYPE_CHECKING:
    from pilotlight_client.aio import AsyncPilotlight
    from pilotlight_client.loop_thread import LoopThread

HEARTBEATS_PER_LIMIT = 4  # so that three may get lost


class AsyncMachine:
    """A READY instance that lives as long as the block, or as long as the program sends heartbeats."""

    def __init__(self, client: "AsyncPilotlight", instance: Instance, *, heartbeat: float) -> None:
        self._client = client
        self._interval = heartbeat / HEARTBEATS_PER_LIMIT
        self.instance = instance

    @property
    def id(self) -> str:
        return self.instance.id

    def address(self, port: int | None = None) -> str:
        """The public address of a port; without a port, of the only one."""
        found = [each.address for each in self.instance.endpoints if port in (None, each.port)]
        if len(found) != 1:
            raise ValueError(
                f"{len(found)} endpoints match; there are ports {[e.port for e in self.instance.endpoints]}"
            )
        return found[0]

    async def refresh(self) -> Instance:
        """Read the instance again."""
        self.instance = await self._client.get(self.id)
        return self.instance

    async def send_heartbeats(self) -> None:
        """Until cancelled. A server that is away for a while is no reason to stop."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._client.heartbeat(self.id)
            except PilotlightError:
                continue


class Machine:
    """The same for the synchronous client."""

    def __init__(self, machine: AsyncMachine, thread: "LoopThread") -> None:
        self._machine = machine
        self._thread = thread

    @property
    def instance(self) -> Instance:
        return self._machine.instance

    @property
    def id(self) -> str:
        return self._machine.id

    def address(self, port: int | None = None) -> str:
        """The public address of a port; without a port, of the only one."""
        return self._machine.address(port)

    def refresh(self) -> Instance:
        """Read the instance again."""
        return self._thread.run(self._machine.refresh())
