"""What creates would collide with: one query for all that ask at the same time, or none if no collision is expected."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from server.batching import GroupCommit
from server.catalog.owners import kinds_of, wanted_objects
from server.db.database import Database
from server.db.outages import is_database_unavailable
from server.enums import ProviderObjectKind
from server.instances.commands.create_statement import CONFLICTS, to_json
from server.instances.limits.policy import Policy
from server.observe.tracing import span

BATCH_MAX = 64
BATCHES_AT_ONCE = 2
PROJECTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Conflicts:
    """What a create would collide with, and the project's rules for lifetimes.

    `foreign`: kinds of the named objects that belong to another project. `has_budget`: the project has budgets or
    quotas. `has_waits`: some of its operations wait for capacity.
    """

    is_name_taken: bool
    is_key_used: bool
    policy: Policy
    foreign: frozenset[ProviderObjectKind]
    has_budget: bool
    has_waits: bool


NONE = Conflicts(False, False, Policy(), frozenset(), has_budget=False, has_waits=False)


@dataclass(frozen=True, slots=True)
class Question:
    """The new instance and the objects at the provider that it names."""

    project_id: UUID
    name: str
    key: str | None
    objects: str | None

    @classmethod
    def of(
        cls, project_id: UUID, name: str, key: str | None, objects: Iterable[tuple[ProviderObjectKind, str | None]]
    ) -> "Question":
        return cls(project_id, name, key, wanted_objects(objects))

    def to_json(self) -> dict[str, Any]:
        return {
            "project": self.project_id,
            "wanted_name": self.name,
            "key": self.key,
            "objects": None if self.objects is None else orjson.Fragment(self.objects),
        }


class ConflictLookup:
    """One per batcher of creates.

    A project whose last create collided with nothing, and that has no rules, is expected to be so again. A
    create that relies on that has the same question asked by the statement that writes it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._without: set[UUID] = set()
        self._reads: GroupCommit[Question, Conflicts] = GroupCommit(
            self._find, largest=BATCH_MAX, at_once=BATCHES_AT_ONCE
        )

    def expects_none(self, project_id: UUID) -> bool:
        return project_id in self._without

    async def find(self, question: Question) -> Conflicts:
        """One query for all that ask at the same time."""
        with span("db.look"):
            conflicts = await self._reads.add(question)
        if conflicts != NONE:
            self._without.discard(question.project_id)
        else:
            if len(self._without) >= PROJECTS_MAX:
                self._without.clear()
            self._without.add(question.project_id)
        return conflicts

    async def _find(self, questions: Sequence[Question]) -> list[Conflicts]:
        rows = await fetch(self._database, CONFLICTS, to_json([each.to_json() for each in questions]))
        return [
            Conflicts(
                is_name_taken=bool(row[0]),
                is_key_used=bool(row[1]),
                policy=Policy.of(None if row[2] is None else orjson.loads(row[2])),
                foreign=kinds_of(row[3]),
                has_budget=bool(row[4]),
                has_waits=bool(row[5]),
            )
            for row in rows
        ]


async def fetch(database: Database, statement: str, *values: Any) -> list[asyncpg.Record]:
    with outage_as_os_error():
        return await database.raw.fetch(statement, *values)


@contextmanager
def outage_as_os_error() -> Generator[None]:
    """An outage is an OSError, also if the driver has its own class for it."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if not is_database_unavailable(error):
            raise
        raise ConnectionError(f"the database went away: {type(error).__name__}") from error
