"""Projects, which own rows; the project `default` administers the server."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.auth.tokens import DEFAULT_PROJECT
from server.clock import new_id
from server.db.database import Database
from server.db.tables import Project, ProjectRow
from server.db.tables.rows import make_rows, select_rows
from server.enums import Role
from server.errors import Invalid, Problem


class Projects:
    """Knows which project administers the server: the one called `default`, which the first token belongs to.

    Its ADMINs create projects and tokens for others and manage what concerns all projects; ADMINs of another project
    manage that project alone. Projects are never renamed, so results are cached for ever.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_server_project: dict[UUID, bool] = {}

    async def is_server_admin(self, caller: Caller) -> bool:
        return caller.may(Role.ADMIN) and await self.is_server_project(caller.project_id)

    async def is_server_project(self, project_id: UUID) -> bool:
        known = self._is_server_project.get(project_id)
        if known is None:
            async with self._database.read() as session:
                name = await session.scalar(select(Project.name).where(Project.id == project_id))
            known = self._is_server_project[project_id] = name == DEFAULT_PROJECT
        return known


async def server_project_id(session: AsyncSession) -> UUID | None:
    """The project that administers the server; None before the first token."""
    return await session.scalar(select(Project.id).where(Project.name == DEFAULT_PROJECT))


async def create_project(session: AsyncSession, name: str) -> Project:
    """Refuses a name that is taken."""
    problems = list(name_problems(name, "INVALID_PROJECT_NAME", ("input", "name")))
    if problems:
        raise Invalid(problems)
    result = await session.execute(
        insert(Project)
        .values(id=new_id(), name=name)
        .on_conflict_do_nothing(index_elements=["name"])
        .returning(Project)
    )
    project = result.scalar_one_or_none()
    if project is None:
        raise Invalid([Problem("PROJECT_NAME_TAKEN", "Another project has this name.", ("input", "name"))])
    return project


async def get_projects(database: Database, ids: Sequence[UUID]) -> dict[UUID, ProjectRow]:
    records = await database.raw.fetch_by_keys(f"{select_rows(ProjectRow)} WHERE id = ANY($1::uuid[])", ids)
    return {row.id: row for row in make_rows(ProjectRow, records)}


NAME_MAX = 100


def name_problems(name: str, code: str, path: tuple[str, ...]) -> Iterator[Problem]:
    if not 1 <= len(name) <= NAME_MAX or not name.strip() or not name.isprintable():
        yield Problem(code, f"The name has 1 to {NAME_MAX} printable characters.", path)
