"""Lines: projects take turns, and a job holds no slot while it waits for its turn."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from server.clock import new_id
from server.db.tables.job import LINES
from server.queue import line_producer
from server.queue.claim import Claim
from server.queue.enqueue import TOPIC, enqueue_many
from server.queue.exchange import JobTurn
from server.queue.handler import Done, Handler, Outcome
from server.queue.kinds import DECLARED, LINED, CreateInstance, DeleteInstance, JobClass, StopInstance, Work
from server.queue.line import Peek
from server.queue.line_producer import LineProducer
from server.queue.worker import Worker
from tests.server.queue.conftest import Note, World
from tests.support.waiting import until


class Gate:
    """Turns that the test hands out, and those that were given back."""

    def __init__(self, **turns: int) -> None:
        self.left = Counter({JobClass(name): count for name, count in turns.items()})
        self.returned = 0

    async def take(self, job_class: JobClass, at_most: int) -> Sequence[JobTurn | None]:
        while not self.left[job_class]:  # noqa: ASYNC110 - the test changes a number
            await asyncio.sleep(0.01)
        taken = min(at_most, self.left[job_class])
        self.left[job_class] -= taken
        return [self] * taken

    def give_back(self) -> None:
        self.returned += 1


def handlers(ran: list[Work]) -> dict[str, Handler]:
    async def run(work: Any, claim: Claim) -> Outcome:
        ran.append(work)
        return Done()

    return {each.kind: Handler(run) for each in (CreateInstance, StopInstance, DeleteInstance, Note)}


async def add(world: World, kind: type[Any], many: int, project: UUID) -> None:
    async with world.database.write() as session:
        await enqueue_many(session, [kind(new_id(), new_id()) for _ in range(many)], project_id=project)


@pytest.mark.parametrize("job_class", LINED)
def test_the_index_of_each_line_has_exactly_its_kinds(job_class: JobClass):
    assert {kind for kind, work in DECLARED.items() if work.job_class is job_class} == set(LINES[job_class])


async def test_projects_take_turns_however_many_jobs_each_has(world: World):
    projects = sorted(uuid4() for _ in range(3))
    for project, many in zip(projects, (50, 10, 3), strict=True):
        await add(world, CreateInstance, many, project)
    gate = Gate()
    worker = Worker(world.database, world.notifier, handlers([]), turns=gate)
    worker.start()
    try:
        for served in range(1, 7):  # one turn after the other
            gate.left[JobClass.CREATES] = 1
            await until(lambda served=served: has_finished(world, served))
    finally:
        await worker.stop()

    rows = await world.rows("SELECT project_id FROM job_history ORDER BY finished_at")
    assert [row[0] for row in rows] == projects * 2


async def test_jobs_that_are_claimed_together_begin_in_the_order_of_the_projects_turns(world: World):
    projects = sorted(uuid4() for _ in range(2))
    await add(world, CreateInstance, 4, projects[0])
    await add(world, CreateInstance, 1, projects[1])
    await world.execute("UPDATE job SET due_at = due_at + interval '1 second' WHERE project_id = $1", projects[1])
    began: list[UUID | None] = []

    async def run(work: Any, claim: Claim) -> Outcome:
        began.append(claim.project_id)
        return Done()

    worker = Worker(
        world.database, world.notifier, {CreateInstance.kind: Handler(run)}, concurrency=20, turns=Gate(creates=10)
    )
    worker.start()
    try:
        await until(lambda: len(began) == 5)
    finally:
        await worker.stop()

    assert began == [projects[0], projects[1], projects[0], projects[0], projects[0]]


async def has_left(world: World, many: int) -> bool:
    return await world.value("SELECT count(*) FROM job WHERE kind = 'CREATE_INSTANCE'") == many


async def has_finished(world: World, many: int) -> bool:
    return await world.value("SELECT count(*) FROM job_history") == many


async def test_a_job_waits_for_its_turn_in_the_table_and_holds_no_slot(world: World):
    await add(world, CreateInstance, 30, uuid4())
    ran: list[Work] = []
    gate = Gate(ends=5)
    worker = Worker(world.database, world.notifier, handlers(ran), concurrency=1, turns=gate)
    worker.start()
    try:
        await add(world, StopInstance, 1, uuid4())
        await world.enqueue(Note("watching"))

        await until(lambda: len(ran) == 2)
        assert {type(work) for work in ran} == {StopInstance, Note}
        assert await world.value("SELECT count(*) FROM job WHERE status = 'WAITING'") == 30

        gate.left[JobClass.CREATES] = 4
        await until(lambda: len(ran) == 6)
        await until(lambda: gate.returned >= 5)  # one of the stop, four of the creates
        await until(lambda: has_left(world, 26))
    finally:
        await worker.stop()


async def test_lines_that_are_woken_together_look_with_one_query(world: World, monkeypatch: pytest.MonkeyPatch):
    asked, looks = Counter[JobClass](), Counter[str]()
    ask, look = LineProducer._peek, line_producer.peek

    async def counted_ask(lines: LineProducer, job_class: JobClass) -> Peek:
        try:
            return await ask(lines, job_class)
        finally:
            asked[job_class] += 1

    async def counted_look(connection: Any, lines: Any, *, at_most: int) -> dict[JobClass, Peek]:
        looks["of all"] += 1
        return await look(connection, lines, at_most=at_most)

    monkeypatch.setattr(LineProducer, "_peek", counted_ask)
    monkeypatch.setattr(line_producer, "peek", counted_look)
    worker = Worker(world.database, world.notifier, handlers([]), poll_interval=timedelta(minutes=1))
    worker.start()
    try:
        for times in (1, 2, 3):
            await until(lambda times=times: len(asked) == 2 and min(asked.values()) >= times)
            world.notifier.notify([TOPIC])
    finally:
        await worker.stop()

    assert looks["of all"] == max(asked.values())
