"""Creates in one batch share only the commit: each has its own result and is written fully or not at all."""

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest

from server.batching import GroupCommit
from server.errors import Invalid, KeyReused, Refused
from server.instances.commands.create import Accepted
from server.instances.commands.create_statement import CONFLICTS
from tests.server.instances.commands import creates_until_killed
from tests.support.waiting import until
from tests.support.world import World

KILLS = 3
# Of each instance: rows that must be there with it, as often as they must.
WHOLE = """
    SELECT instance.name,
           (SELECT count(*) FROM operation WHERE instance_id = instance.id) AS operations,
           (SELECT count(*) FROM job WHERE instance_id = instance.id AND kind = 'CREATE_INSTANCE') AS jobs,
           (SELECT count(*) FROM outbox WHERE instance_id = instance.id) AS events,
           (SELECT count(*) FROM delivery WHERE instance_id = instance.id)
             = (instance.webhook_url IS NOT NULL)::int AS has_delivery,
           (SELECT count(*) FROM job WHERE instance_id = instance.id AND kind = 'SEND_WEBHOOK')
             = (instance.webhook_url IS NOT NULL)::int AS is_sent
    FROM instance
"""


async def names_of_whole_ones(world: World) -> set[str]:
    """Every instance there is, with all that belongs to it; and nothing that belongs to none."""
    rows = await world.rows(WHOLE)
    assert {tuple(row)[1:] for row in rows} <= {(1, 1, 2, True, True)}
    keys = "SELECT count(*) FROM idempotency_key AS k LEFT JOIN operation ON operation.id = k.operation_id"
    assert await world.value(f"{keys} WHERE operation.id IS NULL") == 0
    return {row["name"] for row in rows}


async def test_two_hundred_at_once_are_answered_each_by_itself(world: World):
    await world.create("taken")
    await world.create("before", idempotency_key="used")
    creates = {
        **{f"fresh {n}": world.create(f"fresh-{n}") for n in range(60)},
        **{f"hooked {n}": world.create(f"hooked-{n}", webhook_url="http://127.0.0.1:9/x") for n in range(20)},
        **{f"keyed {n}": world.create(f"keyed-{n}", idempotency_key=f"own-{n}") for n in range(20)},
        **{f"taken {n}": world.create("taken") for n in range(20)},
        **{f"taken-keyed {n}": world.create("taken", idempotency_key=f"vain-{n}") for n in range(10)},
        **{f"same {n}": world.create("same", idempotency_key="same") for n in range(20)},
        **{f"reused {n}": world.create(f"other-{n}", idempotency_key="used") for n in range(10)},
        **{f"race {n}": world.create("race") for n in range(20)},
        **{f"race-keyed {n}": world.create("raced", idempotency_key=f"race-{n}") for n in range(10)},
        **{f"broken {n}": world.create("x" * 300) for n in range(10)},
    }
    assert len(creates) == 200

    answers = dict(zip(creates, await asyncio.gather(*creates.values(), return_exceptions=True), strict=True))

    def came_to(kind: str) -> Counter[str]:
        return Counter(_outcome(answer) for what, answer in answers.items() if what.split()[0] == kind)

    assert came_to("fresh") == {"accepted": 60}
    assert came_to("hooked") == {"accepted": 20}
    assert came_to("keyed") == {"accepted": 20}
    assert came_to("taken") == {"INSTANCE_NAME_TAKEN": 20}
    assert came_to("taken-keyed") == {"INSTANCE_NAME_TAKEN": 10}
    assert came_to("same") == {"accepted": 1, "replayed": 19}
    assert came_to("reused") == {"IDEMPOTENCY_KEY_REUSED": 10}
    assert came_to("race") == {"accepted": 1, "INSTANCE_NAME_TAKEN": 19}
    assert came_to("race-keyed") == {"accepted": 1, "INSTANCE_NAME_TAKEN": 9}
    assert came_to("broken") == {"INVALID_INSTANCE_NAME": 10}
    names = await names_of_whole_ones(world)
    assert len(names) == 2 + 60 + 20 + 20 + 3
    assert await world.value("SELECT count(*) FROM idempotency_key") == 1 + 20 + 1 + 1


def _outcome(answer: Accepted | BaseException) -> str:
    match answer:
        case Accepted():
            return "replayed" if answer.replayed else "accepted"
        case KeyReused() | Invalid():
            return answer.code if isinstance(answer, KeyReused) else answer.problems[0].code
        case Refused():
            return answer.code
        case _:
            return repr(answer)


async def test_with_the_database_cut_off_accepted_creates_are_complete(world: World):
    await world.create("warm")
    accepted: set[str] = set()
    failed: list[BaseException] = []
    is_over = asyncio.Event()

    async def one_after_another(number: int) -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            name = f"one-{number}-{count}"
            try:
                await world.create(name, idempotency_key=name if number % 2 else None)
            except OSError as error:
                failed.append(error)
                await asyncio.sleep(0.01)
            else:
                accepted.add(name)

    callers = [asyncio.create_task(one_after_another(number)) for number in range(12)]
    for cut in range(5):
        enough = 20 * (cut + 1)
        await until(partial(_has, accepted, enough), within=60)
        await _cut(world)
    await until(partial(_has, accepted, 150), within=60)
    is_over.set()
    await asyncio.gather(*callers)

    assert accepted <= await names_of_whole_ones(world)
    assert failed  # else nothing was cut


def _has(names: set[str], enough: int) -> bool:
    return len(names) >= enough


async def _cut(world: World) -> None:
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%wanted_name%'"
    )
    connection = await world.database.connect()
    try:
        await connection.execute(query)
    finally:
        await connection.close()


async def test_after_a_kill_accepted_creates_are_complete(world: World, database_url: str):
    accepted: set[str] = set()
    command = [sys.executable, "-m", creates_until_killed.__name__, database_url]
    process = await asyncio.create_subprocess_exec(
        *(*command, str(world.caller.project_id), str(world.caller.token_id), str(KILLS)),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    victim, of_this_one, kills = 0, 0, 0
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                word, _, pid = line.decode().strip().partition(" ")
                if word == "process":
                    victim, of_this_one = int(pid), 0
                elif len(word) == 36:  # the last line of one that was killed may be cut
                    accepted.add(word)
                    of_this_one += 1
                    if of_this_one == 40:
                        os.kill(victim, signal.SIGKILL)
                        kills += 1
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    assert kills == KILLS
    assert len(accepted) >= 40 * KILLS
    # The server may still be writing what a dead client sent; it does so whole, or not at all.
    assert accepted <= await names_of_whole_ones(world)


async def test_a_single_item_is_written_at_once_and_later_ones_share_the_next_write():
    written: list[list[int]] = []
    is_free = asyncio.Event()

    async def write(items: list[int]) -> list[int]:
        written.append(list(items))
        await is_free.wait()
        return [item * 2 for item in items]

    together: GroupCommit[int, int] = GroupCommit(write, largest=3)
    first = asyncio.create_task(together.add(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(together.add(number)) for number in range(2, 7)]
    await asyncio.sleep(0)
    gone = others.pop(1)
    gone.cancel()
    await asyncio.sleep(0)
    is_free.set()

    assert await first == 2
    assert await asyncio.gather(*others) == [4, 8, 10, 12]
    assert written == [[1], [2, 4, 5], [6]]


async def test_a_name_is_looked_up_without_reading_the_other_instances(world: World):
    await world.create("one")
    await world.execute(
        """INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image)
           SELECT gen_random_uuid(), project_id, 'n' || n, status, product_name, 1, 60, billing, image
           FROM instance, generate_series(2, 1000) AS n"""
    )
    await world.execute("ANALYZE instance")

    rows = await world.rows(f"EXPLAIN (GENERIC_PLAN) {CONFLICTS}", "[]")

    plan = "\n".join(row[0] for row in rows)
    assert "using instance_name_is_unique_among_the_living on instance" in plan
    # A hash of all names would be made again for every create.
    assert "hashed" not in plan
    assert "Seq Scan on instance" not in plan


async def test_an_item_added_right_after_a_result_is_written():
    async def write(items: list[int]) -> list[int]:
        return items

    together: GroupCommit[int, int] = GroupCommit(write, largest=3, at_once=2)

    async def one_after_another() -> None:
        for number in range(50):
            assert await together.add(number) == number

    async with asyncio.timeout(30):
        await asyncio.gather(*(one_after_another() for _ in range(5)))


async def test_each_item_gets_its_own_error_and_a_failed_batch_fails_all():
    async def write(items: list[int]) -> list[int | Exception]:
        if 0 in items:
            raise ConnectionError("gone")
        return [ValueError(str(item)) if item % 2 else item for item in items]

    together: GroupCommit[int, int] = GroupCommit(write, largest=10)
    answers = await asyncio.gather(*(together.add(number) for number in (1, 2, 3, 4)), return_exceptions=True)
    assert [str(each) for each in answers] == ["1", "2", "3", "4"]
    assert [type(each) for each in answers] == [ValueError, int, ValueError, int]
    with pytest.raises(ConnectionError):
        await together.add(0)
    assert await together.add(2) == 2
