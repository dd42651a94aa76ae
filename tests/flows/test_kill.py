"""kill -9 of every process between the accepted request and READY: the next start finishes the create, once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from tests.support.processes import Up, control, has_made, made, pilotlight, up
from tests.support.waiting import until
from tests.support.watcher import STORY, Event, GraphQLClient, positions, story_of

CREATE_CALL = ["POST /gpu/instance/create"]
STANDSTILL = 0.000001


@dataclass
class Restarts:
    """A simulator that keeps running, and the home on which `up` is started again and again."""

    simulator_url: str
    home: Path

    @property
    def settings(self) -> dict[str, str]:
        return {
            "NOVITA_API_KEY": "sk_x",
            "NOVITA_API_BASE_URL": self.simulator_url,
        }

    async def fault(self, kind: str) -> None:
        await control(self.simulator_url, "faults", {"faults": [{"kind": kind, "routes": CREATE_CALL, "times": 1}]})

    async def speed(self, speed: float) -> None:
        await control(self.simulator_url, "speed", {"speed": speed})

    async def was_asked(self) -> bool:
        return CREATE_CALL[0] in (await control(self.simulator_url, "state"))["calls"]

    async def was_polled(self) -> bool:
        return "GET /gpu/instances" in (await control(self.simulator_url, "state"))["calls"]


@pytest.fixture
async def restarts(home: Path, tmp_path: Path) -> AsyncIterator[Restarts]:
    state = tmp_path / "simulator.state"
    async with pilotlight("simulate", "--port", "0", "--state-file", str(state)) as simulator:
        await simulator.says("nothing real is created")
        url = next(word for word in simulator.said.split() if word.startswith("http://"))
        yield Restarts(url, home)


@dataclass
class Accepted:
    """What the client knew when everything was killed."""

    id: str
    seen: list[Event]


async def accepted(running: Up, *, seen_until: str) -> Accepted:
    """Watch, ask, and see at least that status."""
    caller = GraphQLClient(running.graphql_url, running.token)
    async with caller.subscribed() as events:
        id = await caller.create("survivor")
        await events.until(seen_until)
        return Accepted(id, list(events.seen))


async def assert_done_once_and_watched_whole(restarts: Restarts, before: Accepted) -> None:
    """Start again: the same instance becomes READY, there is one, and the log has no gap and no double."""
    async with up(restarts.home, env=restarts.settings) as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        async with caller.subscribed(after=before.seen[-1]["cursor"]) as events:
            rest = await events.until("READY")
            assert (await caller.becomes(before.id, "READY"))["openOperation"] is None
        async with caller.subscribed(after=before.seen[0]["cursor"]) as replayed:
            again = await replayed.until("READY")
        log = await caller.log()

    assert await made(restarts.simulator_url) == 1
    whole = [*before.seen, *rest]
    assert story_of(whole, before.id) == STORY
    assert positions(whole, log) == sorted(set(positions(whole, log)))
    assert [event["id"] for event in again] == [event["id"] for event in whole[1:]]


async def test_right_after_the_answer(restarts: Restarts):
    async with up(restarts.home, env=restarts.settings) as running:
        before = await accepted(running, seen_until="CREATING")
        await running.kill_tree()

    await assert_done_once_and_watched_whole(restarts, before)


async def test_while_starting_and_again_while_checking_health(restarts: Restarts):
    await restarts.speed(STANDSTILL)
    async with up(restarts.home, env=restarts.settings) as running:
        before = await accepted(running, seen_until="STARTING")
        await running.kill_tree()

    async with up(restarts.home, env=restarts.settings) as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        novita_id = (await caller.instance(before.id))["novitaId"]
        await control(restarts.simulator_url, f"instances/{novita_id}/endpoint", {"port": 80, "mode": "badGateway"})
        async with caller.subscribed(after=before.seen[-1]["cursor"]) as events:
            await restarts.speed(50)
            before.seen += await events.until("HEALTH_CHECKING")
        await running.kill_tree()
    await control(restarts.simulator_url, f"instances/{novita_id}/endpoint", {"port": 80})

    await assert_done_once_and_watched_whole(restarts, before)


@pytest.mark.parametrize("kind", ["hangAfter", "lostAnswer"])
async def test_a_kill_after_the_machine_was_made_and_before_the_response_was_read(restarts: Restarts, kind: str):
    await restarts.fault(kind)
    async with up(restarts.home, env=restarts.settings) as running:
        before = await accepted(running, seen_until="CREATING")
        await has_made(restarts.simulator_url, 1)
        await running.kill_tree()

    await assert_done_once_and_watched_whole(restarts, before)


async def test_when_the_create_was_under_way_and_made_nothing(restarts: Restarts):
    await restarts.fault("hang")
    async with up(restarts.home, env=restarts.settings) as running:
        before = await accepted(running, seen_until="CREATING")
        await until(restarts.was_asked)
        await running.kill_tree()
    assert await made(restarts.simulator_url) == 0

    async with up(restarts.home, env=restarts.settings) as running:
        await until(restarts.was_polled)
        assert await made(restarts.simulator_url) == 0  # it may still appear, so nothing is asked for again
        connection = await asyncpg.connect(running.ready["databaseUrl"])
        await connection.execute("UPDATE attempt SET created_at = created_at - interval '1 hour'")
        await connection.close()
        await has_made(restarts.simulator_url, 1)
        await running.kill_tree()

    await assert_done_once_and_watched_whole(restarts, before)
