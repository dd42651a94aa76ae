"""The order and completeness of the log, whatever the writers do."""

import asyncio
import random
from collections import defaultdict
from uuid import UUID

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.notify import Notifier
from server.events.event import EventType
from server.events.outbox import append
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, change, count, log_of, make_instances, running, take


async def test_sixteen_writers_lose_double_and_disorder_nothing(database: Database, tail: Tail):
    instances = await make_instances(database, 40)
    committed: list[UUID] = []
    latest: dict[UUID, int] = defaultdict(int)

    async def write(number: int) -> None:
        rng = random.Random(number)
        for _ in range(40):
            instance_id = rng.choice(instances)
            event_id, version = await change(database, instance_id)
            committed.append(event_id)
            latest[instance_id] = max(latest[instance_id], version)

    async with tail.subscribe(project_id=PROJECT, after=None) as events:
        writers = asyncio.gather(*(write(number) for number in range(16)))
        seen = await take(events, 640)
        await writers

    assert sorted(event.id for event in seen) == sorted(committed)
    first = seen[0].position
    assert [event.position for event in seen] == list(range(first, first + 640))
    versions: dict[UUID | None, list[int]] = defaultdict(list)
    for event in seen:
        versions[event.instance_id].append(event.data["version"])
    assert versions == {each: list(range(1, last + 1)) for each, last in latest.items()}
    assert await log_of(database) == [(event.position, event.id) for event in seen]
    assert await count(database, "outbox") == 0


async def test_a_backlog_is_numbered_in_the_order_of_each_instances_changes(database: Database, signals: Notifier):
    """Many events of one instance in one batch, and batches that end in the middle of them."""
    instances = await make_instances(database, 3)

    async def write(number: int) -> None:
        for step in range(10):
            await change(database, instances[(number + step) % 3])

    await asyncio.gather(*(write(number) for number in range(9)))
    async with running(Sequencer(database, signals, batch=40)):
        await until(lambda: is_sequenced(database))

    async with database.read() as session:
        rows = await session.execute(text("SELECT instance_id, data FROM event ORDER BY position"))
        versions: dict[UUID, list[int]] = defaultdict(list)
        for row in rows:
            versions[row.instance_id].append(row.data["version"])
    assert versions == {each: list(range(1, 31)) for each in instances}


async def is_sequenced(database: Database) -> bool:
    return await count(database, "outbox") == 0


async def test_an_event_that_commits_late_comes_after_what_was_seen_before_it(database: Database, tail: Tail):
    slow, fast = await make_instances(database, 2)

    async with tail.subscribe(project_id=PROJECT, after=None) as events:
        async with database.write() as session:
            await session.execute(text("UPDATE instance SET version = 1 WHERE id = :id"), {"id": slow})
            late = await append(session, type=EventType.INSTANCE_CHANGED, project_id=PROJECT, instance_id=slow, data={})
            early, _ = await change(database, fast)  # a higher seq, committed first
            [first] = await take(events, 1)
        [second] = await take(events, 1)

    assert (first.id, second.id) == (early, late)
    assert second.position == first.position + 1


async def test_a_change_that_was_rolled_back_writes_no_event(database: Database, tail: Tail):
    [instance_id] = await make_instances(database, 1)

    async def write_and_fail() -> None:
        async with database.write() as session:
            await append(session, type=EventType.INSTANCE_READY, project_id=PROJECT, instance_id=instance_id, data={})
            raise LookupError

    async with tail.subscribe(project_id=PROJECT, after=None) as events:
        with pytest.raises(LookupError):
            await write_and_fail()
        kept, _ = await change(database, instance_id)
        [seen] = await take(events, 1)

    assert seen.id == kept
    assert [event_id for _, event_id in await log_of(database)] == [kept]


async def test_an_event_has_the_fields_it_was_written_with(database: Database, tail: Tail):
    [instance_id] = await make_instances(database, 1)
    operation_id, token_id = UUID(int=2), UUID(int=3)

    async with tail.subscribe(project_id=PROJECT, after=None) as events:
        async with database.write() as session:
            event_id = await append(
                session,
                type=EventType.OPERATION_STARTED,
                project_id=PROJECT,
                instance_id=instance_id,
                operation_id=operation_id,
                caused_by=token_id,
                data={"instance": {"status": "STARTING", "labels": {"köln": "✓"}}},
            )
        [event] = await take(events, 1)

    assert (event.id, event.type, event.project_id) == (event_id, "operation.started", PROJECT)
    assert (event.instance_id, event.operation_id, event.caused_by) == (instance_id, operation_id, token_id)
    assert event.data == {"instance": {"status": "STARTING", "labels": {"köln": "✓"}}}
    assert event.occurred_at.utcoffset() is not None
