"""Projects: who owns rows. One of them is the server's own."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.auth.names import name_problems
from server.auth.tokens import DEFAULT_PROJECT
from server.clock import new_id
from server.db.engine import Database
from server.db.tables import Project
from server.errors import Invalid, Problem
from server.words import Role


class Projects:
    """Knows which project is the server's own: the one called `default`, which the first token belongs to.

    Its ADMINs run the server: they make projects and tokens for others, and what concerns all projects is theirs. The
    ADMINs of any other project rule over that project alone. A project keeps its name, so an answer is good for ever.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_own: dict[UUID, bool] = {}

    async def runs_the_server(self, caller: Caller) -> bool:
        return caller.may(Role.ADMIN) and await self.is_servers_own(caller.project_id)

    async def is_servers_own(self, project_id: UUID) -> bool:
        known = self._is_own.get(project_id)
        if known is None:
            async with self._database.read() as session:
                name = await session.scalar(select(Project.name).where(Project.id == project_id))
            known = self._is_own[project_id] = name == DEFAULT_PROJECT
        return known


async def create_project(session: AsyncSession, name: str) -> Project:
    """Refuses a name that another has."""
    problems = list(name_problems(name, "INVALID_PROJECT_NAME", ("input", "name")))
    if problems:
        raise Invalid(problems)
    made = await session.execute(
        insert(Project)
        .values(id=new_id(), name=name)
        .on_conflict_do_nothing(index_elements=["name"])
        .returning(Project)
    )
    project = made.scalar_one_or_none()
    if project is None:
        raise Invalid([Problem("PROJECT_NAME_TAKEN", "Another project has this name.", ("input", "name"))])
    return project


async def get_projects(session: AsyncSession, ids: Sequence[UUID]) -> dict[UUID, Project]:
    found = await session.execute(select(Project).where(Project.id.in_(ids)))
    return {row.id: row for row in found.scalars()}


async def page_of_projects(
    session: AsyncSession, *, only: UUID | None, first: int, after: tuple[datetime, UUID] | None = None
) -> Sequence[Project]:
    """Newest first; `only` is the one that a caller may see, where that is not all."""
    query = select(Project).where(*_conditions(only))
    if after is not None:
        query = query.where(tuple_(Project.created_at, Project.id) < after)
    found = await session.execute(query.order_by(Project.created_at.desc(), Project.id.desc()).limit(first))
    return found.scalars().all()


async def count_projects(session: AsyncSession, *, only: UUID | None) -> int:
    found = await session.execute(select(func.count()).select_from(Project).where(*_conditions(only)))
    return found.scalar_one()


def _conditions(only: UUID | None) -> list[ColumnElement[bool]]:
    return [] if only is None else [Project.id == only]
