"""Where work comes from survives its way through a job's row."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

from server.observe import origin
from server.queue.enqueue import enqueue_many
from server.queue.kinds import CleanUp
from server.queue.retry import retry_job
from server.words import InstanceStatus
from tests.world import World

OPERATION = UUID("01901234-5678-7abc-8def-0123456789ab")
TOKEN = UUID("01901234-5678-7abc-8def-ba9876543210")
PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def nothing_bound() -> Iterator[None]:
    clear_contextvars()
    yield
    clear_contextvars()


def test_without_a_request_there_is_no_origin():
    assert origin.here() is None


def test_what_is_bound_is_written_and_bound_again():
    bind_contextvars(request_id="req_abc", token_id=TOKEN, operation_id=OPERATION, kind="CLEANUP")
    written = origin.here()
    assert written == f"req_abc tok_{TOKEN.hex} op_{OPERATION.hex}"
    clear_contextvars()

    assert origin.resume(written) is None
    assert get_contextvars() == {
        "request_id": "req_abc",
        "token_id": f"tok_{TOKEN.hex}",
        "operation_id": f"op_{OPERATION.hex}",
    }
    assert origin.here() == written


def test_an_operation_that_is_about_to_begin_can_be_given():
    assert origin.here(operation_id=OPERATION) == f"op_{OPERATION.hex}"
    assert get_contextvars() == {}


@pytest.mark.parametrize(
    ("words", "place", "bound"),
    [
        (f"req_abc {PLACE}", PLACE, {"request_id": "req_abc"}),
        (f"new_word req_abc nothing {PLACE}", PLACE, {"request_id": "req_abc"}),
        ("", None, {}),
        ("_ - 00", None, {}),
    ],
)
def test_words_that_are_not_known_are_passed_over(words: str, place: str | None, bound: dict[str, Any]):
    assert origin.resume(words) == place
    assert get_contextvars() == bound


async def test_every_way_into_the_queue_writes_it(world: World):
    bind_contextvars(request_id="req_abc")
    await world.enqueue(CleanUp())
    async with world.database.write() as session:
        await enqueue_many(session, [CleanUp(), CleanUp()])
    await world.create("one")

    rows = await world.rows("SELECT kind, split_part(origin, ' ', 1) AS request FROM job ORDER BY id")
    assert [tuple(row) for row in rows] == [("CLEANUP", "req_abc")] * 3 + [("CREATE_INSTANCE", "req_abc")]


async def test_a_retried_job_comes_from_whoever_retries_it(world: World):
    job_id = await world.enqueue(CleanUp())
    await world.execute("DELETE FROM job")
    await world.execute(
        "INSERT INTO job_history (id, kind, args, priority, status, run_at, attempts, error_code, created_at,"
        " finished_at) VALUES ($1, 'CLEANUP', '{}', 2, 'FAILED', now(), 3, 'X', now(), now())",
        job_id,
    )
    bind_contextvars(request_id="req_again")

    async with world.database.write() as session:
        assert await retry_job(session, job_id)

    assert await world.value("SELECT origin FROM job WHERE id = $1", job_id) == "req_again"


async def test_what_a_job_enqueues_comes_from_where_the_job_came_from(world: World):
    bind_contextvars(request_id="req_first")
    accepted = await world.create("one")
    clear_contextvars()

    await world.work_until_status(accepted.instance.id, InstanceStatus.STARTING)

    follower = await world.value("SELECT origin FROM job WHERE kind = 'MONITOR_INSTANCE'")
    assert follower.split()[0] == "req_first"
    assert f"op_{accepted.operation.id.hex}" in follower.split()
