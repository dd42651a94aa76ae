"""The trace context of a request is stored with its job and restored when it runs."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

from server.enums import InstanceStatus
from server.graphql.service import new_request_id
from server.observe import job_origin
from server.queue.control import retry_job
from server.queue.enqueue import enqueue_many
from server.queue.kinds import CleanUp
from tests.support.world import World

OPERATION = UUID("01901234-5678-7abc-8def-0123456789ab")
TOKEN = UUID("01901234-5678-7abc-8def-ba9876543210")
PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def nothing_bound() -> Iterator[None]:
    clear_contextvars()
    yield
    clear_contextvars()


def test_without_a_request_there_is_no_origin():
    assert job_origin.current_origin() is None


def test_what_is_bound_is_written_and_bound_again():
    bind_contextvars(request_id="req_abc", token_id=TOKEN, operation_id=OPERATION, kind="CLEANUP")
    written = job_origin.current_origin()
    assert written == f"req_abc tok_{TOKEN.hex} op_{OPERATION.hex}"
    clear_contextvars()

    assert job_origin.resume_origin(written) is None
    assert get_contextvars() == {
        "request_id": "req_abc",
        "token_id": f"tok_{TOKEN.hex}",
        "operation_id": f"op_{OPERATION.hex}",
    }
    assert job_origin.current_origin() == written


def test_request_id_and_trace_of_the_caller_are_written_bound_again_and_sent():
    bind_contextvars(request_id="my-id.7", **job_origin.bound_traceparent(PLACE))
    written = job_origin.current_origin()
    assert written == f"rid:my-id.7 {PLACE}"
    clear_contextvars()

    assert job_origin.resume_origin(written) == PLACE
    assert get_contextvars() == {"request_id": "my-id.7", "traceparent": PLACE}
    assert job_origin.outgoing_headers() == {"x-request-id": "my-id.7", "traceparent": PLACE}


@pytest.mark.parametrize("given", ["", "a b", "a\nb", "x" * 65, 'a"b', "ä", "a:b"])
def test_request_id_of_another_form_is_not_taken_over(given: str):
    assert not job_origin.is_request_id(given)
    assert new_request_id(given).startswith("req_")


@pytest.mark.parametrize("given", ["", "00-x", PLACE.upper(), f"00-{'0' * 32}-{'1' * 16}-01", f"{PLACE} "])
def test_malformed_trace_context_is_not_taken_over(given: str):
    assert job_origin.bound_traceparent(given) == {}


def test_an_operation_that_is_about_to_begin_can_be_given():
    assert job_origin.current_origin(operation_id=OPERATION) == f"op_{OPERATION.hex}"
    assert get_contextvars() == {}


@pytest.mark.parametrize(
    ("words", "place", "bound"),
    [
        (f"req_abc {PLACE}", PLACE, {"request_id": "req_abc", "traceparent": PLACE}),
        (f"new_word req_abc nothing {PLACE}", PLACE, {"request_id": "req_abc", "traceparent": PLACE}),
        ("rid:my-id.7", None, {"request_id": "my-id.7"}),
        ("", None, {}),
        ("_ - 00", None, {}),
    ],
)
def test_words_that_are_not_known_are_passed_over(words: str, place: str | None, bound: dict[str, Any]):
    assert job_origin.resume_origin(words) == place
    assert get_contextvars() == bound


async def test_every_way_into_the_queue_writes_it(world: World):
    bind_contextvars(request_id="req_abc")
    await world.enqueue(CleanUp())
    async with world.database.write() as session:
        await enqueue_many(session, [CleanUp(), CleanUp()])
    await world.create("one")

    rows = await world.rows("SELECT kind, split_part(origin, ' ', 1) AS request FROM job ORDER BY id")
    assert [tuple(row) for row in rows] == [("CLEANUP", "req_abc")] * 3 + [("CREATE_INSTANCE", "req_abc")]


async def test_a_retried_job_belongs_to_the_request_that_retried_it(world: World):
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


async def test_a_job_enqueued_by_a_job_has_the_same_origin(world: World):
    bind_contextvars(request_id="req_first")
    accepted = await world.create("one")
    clear_contextvars()

    await world.work_until_status(accepted.instance.id, InstanceStatus.STARTING)

    follower = await world.value("SELECT origin FROM job WHERE kind = 'MONITOR_INSTANCE'")
    assert follower.split()[0] == "req_first"
    assert f"op_{accepted.operation.id.hex}" in follower.split()
