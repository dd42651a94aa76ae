"""Helpers for tests of the log: writers, readers that collect, and a wait with a deadline."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert

from server.clock import new_id
from server.db.database import Database
from server.db.notify import Notifier
from server.db.tables import Instance, Project
from server.events.event import Event, EventType
from server.events.outbox import append
from server.events.reader import EventReader
from server.events.sequencer import Sequencer
from server.events.tail import Tail

PROJECT = UUID(int=1)
WITHIN = timedelta(seconds=30)  # never waited for, except on a machine that is busy with other things


async def make_instances(database: Database, count: int) -> list[UUID]:
    """Rows to lock and to count up."""
    ids = [new_id() for _ in range(count)]
    async with database.write() as session:
        await session.execute(
            insert(Project).values(id=PROJECT, name="events").on_conflict_do_nothing(index_elements=["id"])
        )
        session.add_all(
            Instance(
                id=each,
                project_id=PROJECT,
                name=str(each),
                status="RUNNING",
                version=0,
                product_name="RTX 4090 24GB",
                gpu_count=1,
                rootfs_size_gb=60,
                billing="SPOT",
                image="busybox",
            )
            for each in ids
        )
    return ids


async def change(database: Database, instance_id: UUID, project_id: UUID = PROJECT) -> tuple[UUID, int]:
    """One change under the row's lock, and its event with the new version."""
    async with database.write() as session:
        bump = text("UPDATE instance SET version = version + 1 WHERE id = :id RETURNING version")
        version = (await session.execute(bump, {"id": instance_id})).scalar_one()
        event_id = await append(
            session,
            type=EventType.INSTANCE_CHANGED,
            project_id=project_id,
            instance_id=instance_id,
            data={"version": version},
        )
    return event_id, version


async def write_events(database: Database, count: int = 1, *, project_id: UUID = PROJECT) -> list[UUID]:
    """Events that belong to no row."""
    async with database.write() as session:
        return [
            await append(
                session,
                type=EventType.HEALTH_CHECKED,
                project_id=project_id,
                instance_id=None,
                data={"number": number},
            )
            for number in range(count)
        ]


@asynccontextmanager
async def running(part: Sequencer | Tail | Notifier):
    part.start()
    try:
        yield part
    finally:
        await part.stop()


async def log_of(database: Database) -> list[tuple[int, UUID]]:
    """The whole log as the table has it."""
    async with database.read() as session:
        rows = await session.execute(text("SELECT position, id FROM event ORDER BY position"))
        return [(row.position, row.id) for row in rows]


async def count(database: Database, table: str) -> int:
    async with database.read() as session:
        return (await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()


async def take(events: EventReader, count: int) -> list[Event]:
    async with asyncio.timeout(WITHIN.total_seconds()):
        return [await anext(events) for _ in range(count)]


async def terminate(database: Database, application_name: str) -> int:
    """End those connections from the server's side; returns how many there were."""
    async with database.write() as session:
        ended = await session.execute(
            text(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = :name AND pid <> pg_backend_pid()"
            ),
            {"name": application_name},
        )
        return ended.scalar_one()
