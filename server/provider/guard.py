"""Lets calls pass only to the provider that the database belongs to."""

import asyncio
import time
from copy import copy
from dataclasses import dataclass

import structlog
from pydantic import SecretStr

from server.db.database import Database
from server.db.outages import DATABASE_ERRORS
from server.enums import ProviderKind
from server.errors import AuthFailed, NovitaError, StartupProblem, WrongProvider
from server.novita.client import NovitaClient
from server.novita.transport.http import NotConnected
from server.provider import identity
from server.provider.identity import FoundProvider

log = structlog.get_logger(__name__)

# Seconds that a start waits for the provider; then it goes on without, as in an outage.
CONFIRM_TIMEOUT = 5.0
# Seconds between two looks at a provider that is not confirmed.
LOOK_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Bound:
    """The provider of this database, as far as a process needs it."""

    kind: ProviderKind
    world_id: str | None


class ProviderGuard:
    """A call guard of the client. `confirm`, or else the first call, compares the provider with the database's row.

    While the provider can't be reached, the row counts if address and key are those that it was confirmed with: then
    an outage at start is like any other. With another address or key, calls wait until it was reached.
    """

    def __init__(self, database: Database, novita: NovitaClient, *, base_url: str, key: SecretStr) -> None:
        self._database = database
        self._novita = novita
        self._base_url = base_url
        self._key = key
        self._bound: Bound | None = None
        self._failure: NovitaError | None = None
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._was_reached = False
        self._confirming: asyncio.Task[bool] | None = None

    @property
    def is_simulator(self) -> bool:
        """False while it is not known: "nothing is billed" must not be a guess."""
        return self._bound is not None and self._bound.kind is ProviderKind.SIMULATOR

    @property
    def problem(self) -> str | None:
        """Why no calls are made, or None."""
        return None if self._failure is None else self._failure.message

    @property
    def refuses_key(self) -> bool:
        """Whether the provider refuses a key that was never known to be right."""
        return isinstance(self._failure, AuthFailed)

    async def confirm(self) -> None:
        """Called at start: raises StartupProblem at another provider; one that is away is no problem yet."""
        # Not cancelled when the time is over: calls that follow wait for the same look.
        self._confirming = asyncio.create_task(self.reach(), name="look at the provider")
        await asyncio.wait({self._confirming}, timeout=CONFIRM_TIMEOUT)
        if isinstance(self._failure, WrongProvider):
            raise StartupProblem(self._failure.message)
        if not self._was_reached:
            log.warning("provider.unreachable", problem=self.problem or "no answer in time")

    async def close(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
            await asyncio.gather(self._confirming, return_exceptions=True)

    async def admit(self) -> None:
        if self._bound is not None and self._failure is None:
            return
        await self._look()
        if self._failure is not None:
            failure = copy(self._failure)  # several callers may raise it at once
            failure.is_certain_refusal = True  # the call that waits here was not sent
            raise failure

    async def reach(self) -> bool:
        """Whether the right provider has answered since the start; looks again if it has not."""
        if not self._was_reached:
            await self._look()
        return self._was_reached

    def check_sender(self, status: int, world_id: str | None) -> None:
        """Refuse a response of another provider. An error without a world may come from a gateway in between."""
        if self._bound is None:
            return
        is_right = world_id == self._bound.world_id
        if not is_right and (world_id is not None or status < 300):
            found = FoundProvider(self._base_url, self._key, world_id)
            message = f"The provider has changed while this process ran: the settings lead to {found} now."
            self._failure = WrongProvider(message, status=status)
            log.error("provider.changed", problem=message)
            raise self._failure
        self._was_reached = self._was_reached or (is_right and status < 300)

    async def _look(self) -> None:
        async with self._looking:  # one look at a time; who waited for it uses its result
            if time.monotonic() - self._looked_at < LOOK_PAUSE:
                return
            try:
                self._bound = await self._find()
                self._failure = None
            except NovitaError as error:
                self._failure = error
            except DATABASE_ERRORS as error:
                name = type(error).__name__
                self._failure = NotConnected(f"the database can't say which provider it belongs to ({name})")
            finally:
                self._looked_at = time.monotonic()

    async def _find(self) -> Bound:
        """Compare the provider with the row; write the row if there is none."""
        try:
            world_id = await self._novita.read_world_id()
        except NovitaError:
            async with self._database.read() as session:
                row = await identity.read_identity(session)
            if row is None or not identity.has_same_settings(row, self._base_url, self._key):
                raise
            return Bound(ProviderKind(row.kind), row.world_id)
        found = FoundProvider(self._base_url, self._key, world_id)
        async with self._database.read() as session:
            row = await identity.read_identity(session)
        if row is None:
            async with self._database.write() as session:
                row = await identity.bind(session, found)
            log.info("provider.bound", kind=row.kind, base_url=row.base_url, world_id=row.world_id)
        if row.world_id != world_id:
            raise _wrong(identity.describe(row), found)
        if not identity.has_same_settings(row, self._base_url, self._key):
            if world_id is None and not await self._sees_our_machine():
                raise _wrong(identity.describe(row), found)
            async with self._database.write() as session:
                await identity.remember_settings(session, row, found)
        self._was_reached = True
        return Bound(ProviderKind(row.kind), row.world_id)

    async def _sees_our_machine(self) -> bool:
        """An account sees its own machines only, so one that is seen proves the account."""
        async with self._database.read() as session:
            machines = await identity.machines_to_try(session)
        for novita_id in machines:
            if await self._novita.has_instance(novita_id):
                return True
        return False


def _wrong(bound: str, found: FoundProvider) -> WrongProvider:
    difference = f"the settings lead to {found}"
    if bound == str(found):
        difference = "NOVITA_API_KEY is a new key, with which none of its machines can be seen"
    return WrongProvider(
        f"This database belongs to {bound}, but {difference}. Nothing was done. Start with the former settings, or "
        f"move the database on purpose with `pilotlight provider rebind --confirm {found.confirmation()}`."
    )
