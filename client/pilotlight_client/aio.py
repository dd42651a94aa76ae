"""The asynchronous client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Literal

from standardwebhooks import Webhook
from typing_extensions import Self, Unpack

from pilotlight_client import documents
from pilotlight_client.accepted import Accepted
from pilotlight_client.connection import find_server
from pilotlight_client.decoding import decode
from pilotlight_client.encoding import encode_fields
from pilotlight_client.errors import OperationFailed, PilotlightError, RequestFailed, WaitTimedOut
from pilotlight_client.inputs import CreateArguments, EventFilter
from pilotlight_client.machine import AsyncMachine
from pilotlight_client.models import Instance, InstanceEvent, InstanceLog, Operation, OperationStatus
from pilotlight_client.requests import AsyncRequests, new_key
from pilotlight_client.transport import Pauses, StreamCut, Transport

HEARTBEAT = 120.0
ENDED = (OperationStatus.SUCCEEDED, OperationStatus.FAILED, OperationStatus.CANCELLED, OperationStatus.SUPERSEDED)


class AsyncPilotlight(AsyncRequests):
    """A client of one Pilotlight server.

    Without arguments: PILOTLIGHT_URL and PILOTLIGHT_TOKEN, else the current context of `pilotlight context`, else the
    `pilotlight up` of this folder. Every mutation has an idempotency key, made here unless it is given, and is sent
    again with the same key while the server is away, up to `retry_for` seconds.

    An instance is given by its id or its name.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, retry_for: float = 60.0) -> None:
        self._retry_for = retry_for
        self._transport = Transport(find_server(url, token), retry_for=retry_for)
        super().__init__(self._transport)

    async def wait(
        self, operation: str | Operation | Accepted, *, timeout: timedelta | float | None = None
    ) -> Operation:
        """Follow an operation to its end.

        Raises OperationFailed unless it SUCCEEDED, and WaitTimedOut if it has not ended in time: it goes on then.
        """
        if isinstance(operation, Accepted):
            operation = operation.operation
        id = operation if isinstance(operation, str) else operation.id
        async for current in self.follow(id, timeout=timeout):
            if current.status == OperationStatus.SUCCEEDED:
                return current
        raise OperationFailed(await self.operation(id))

    async def follow(self, operation: str, *, timeout: timedelta | float | None = None) -> AsyncIterator[Operation]:
        """The operation now and after every change, until it has ended; WaitTimedOut if that takes too long."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        clock = asyncio.get_running_loop().time
        deadline = None if seconds is None else clock() + seconds
        updates = self._resumed(documents.FOLLOW, operation, "operation")
        while True:
            try:
                left = None if deadline is None else deadline - clock()
                current = decode(Operation, await asyncio.wait_for(anext(updates), left))
            except StopAsyncIteration:
                return
            except asyncio.TimeoutError:
                raise WaitTimedOut(await self.operation(operation)) from None
            yield current
            if current.status in ENDED:
                return

    async def watch(self, instance: str) -> AsyncIterator[Instance]:
        """The instance now and after every change, until it is DELETED."""
        async for data in self._resumed(documents.WATCH, await self._id_of(instance), "instance"):
            yield decode(Instance, data)

    async def events(
        self, *, after: str | None = None, **arguments: Unpack[EventFilter]
    ) -> AsyncIterator[InstanceEvent]:
        """Every event after the cursor, else from now on: in order, none missing, none twice, for ever."""
        cursor = after or await self.head()
        pauses = Pauses(self._retry_for)
        while True:
            variables = {"filter": encode_fields(arguments), "after": cursor}
            try:
                async for data in self._transport.stream(documents.EVENTS, variables):
                    event = decode(InstanceEvent, data["event"])
                    cursor = event.cursor
                    pauses.reset()
                    yield event
            except StreamCut as cut:
                await pauses.wait(cut)
            except RequestFailed as failed:
                if not failed.is_retryable:
                    raise
                await pauses.wait(failed)

    async def follow_log(
        self, instance: str, *, which: Literal["CONTAINER", "SYSTEM"] = "CONTAINER", tail: int = 200
    ) -> AsyncIterator[str]:
        """The last lines of a log, at most 200, then what is added, until the connection ends."""
        variables = {"instanceId": await self._id_of(instance), "which": which}
        shown, pauses = None, Pauses(self._retry_for)
        while True:
            try:
                async for data in self._transport.stream(documents.FOLLOW_LOG, variables):
                    part = decode(InstanceLog, data["instanceLog"])
                    pauses.reset()
                    text = part.text
                    if shown is None:
                        lines = text.splitlines(keepends=True)
                        text = "".join(lines[max(0, len(lines) - tail) :])
                    elif part.begin < shown <= part.end:  # the last lines once more; a shorter log was begun anew
                        text = text.encode()[shown - part.begin :].decode(errors="replace")
                    shown = part.end
                    if text:
                        yield text
                return
            except StreamCut as cut:
                await pauses.wait(cut)

    @asynccontextmanager
    async def instance(self, **arguments: Unpack[CreateArguments]) -> AsyncGenerator[AsyncMachine, None]:
        """An instance for the length of a block: create, wait until it is READY, send heartbeats, delete.

        A killed program leaves no machine: unless `lifetime` says otherwise, the server deletes the instance after
        120 s without a heartbeat.
        """
        lifetime = {"heartbeat": HEARTBEAT, "on_end": "DELETE", **arguments.get("lifetime", {})}
        accepted = await self._accept(
            documents.CREATE, {"idempotency_key": new_key(), **arguments, "lifetime": lifetime}
        )
        limit = lifetime["heartbeat"]
        machine = AsyncMachine(
            self,
            accepted.instance,
            heartbeat=limit.total_seconds() if isinstance(limit, timedelta) else float(str(limit)),
        )
        heartbeats = asyncio.ensure_future(machine.send_heartbeats())
        try:
            await self.wait(accepted)
            await machine.refresh()
            yield machine
        except BaseException:
            heartbeats.cancel()
            with suppress(PilotlightError):  # the first error is the one to show; the lifetime ends the machine anyway
                await self.delete(machine.id)
            raise
        heartbeats.cancel()
        await self.delete(machine.id)

    @staticmethod
    def verify_webhook(secret: str, payload: bytes | str, headers: Mapping[str, str]) -> dict[str, Any]:
        """The message of a webhook, if its signature is right; raises standardwebhooks.WebhookVerificationError."""
        return Webhook(secret).verify(payload, dict(headers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _resumed(self, document: str, id: str, field: str) -> AsyncIterator[dict[str, Any]]:
        """A subscription that starts with the current state: after a reconnect, what was seen already is left out."""
        version, pauses = -1, Pauses(self._retry_for)
        while True:
            try:
                async for data in self._transport.stream(document, {"id": id}):
                    pauses.reset()
                    if data["update"][field]["version"] > version:
                        version = data["update"][field]["version"]
                        yield data["update"][field]
                return
            except StreamCut as cut:
                await pauses.wait(cut)
            except RequestFailed as failed:
                if not failed.is_retryable:
                    raise
                await pauses.wait(failed)
