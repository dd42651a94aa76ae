"""Ctrl-C while a command waits, and a server that goes away meanwhile: what goes on is named with what it costs."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import typer
from pilotlight_client import Accepted, Pilotlight

from server.cli.user.progress import request
from tests.server.cli.user.conftest import Run, Start
from tests.server.cli.user.test_user_commands import CREATE, new_name
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import Up, control
from tests.support.waiting import until

BILLED = r"billed at 0\.\d+ USD an hour"
DISK = "only its disk is billed now"


@asynccontextmanager
async def slow_provider(running: Up) -> AsyncIterator[None]:
    """Each of its responses takes three seconds: time enough for Ctrl-C."""
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "latency", "seconds": 3}]})
    try:
        yield
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})


async def interrupted(process: asyncio.subprocess.Process) -> str:
    """What it says after Ctrl-C, sent once it has written its first line."""
    assert process.stderr is not None
    first = await asyncio.wait_for(process.stderr.readline(), 60)
    process.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(process.communicate(), 60)
    return (first + said).decode()


@pytest.mark.parametrize(
    ("command", "operation", "cost", "end"),
    [
        (("start",), "START", DISK, "READY"),
        (("stop",), "STOP", BILLED, "EXITED"),
        (("restart",), "RESTART", BILLED, "READY"),
        (("move",), "MIGRATE", BILLED, "READY"),
        (("update", "--disk", "80"), "UPDATE", BILLED, "READY"),
        (("rm",), "DELETE", BILLED, "DELETED"),
    ],
)
async def test_ctrl_c_while_a_verb_waits_names_what_goes_on_and_it_does(
    command: Sequence[str], operation: str, cost: str, end: str, run: Run, start: Start, running: Up
):
    name = new_name()
    id = json.loads((await run(*CREATE, name)).printed)["id"]
    if operation == "START":
        assert (await run("stop", name)).code == 0
    async with slow_provider(running):
        process = await start(*command, name)
        said = await interrupted(process)

    assert process.returncode == 130
    remove = "" if operation == "DELETE" else rf"  remove it: pilotlight rm {name}\n"
    assert re.search(
        rf"(?m)^{operation} of {name} goes on, {cost}\.\n  watch it:  pilotlight wait {name}\n{remove}\Z", said
    )
    assert (await run("wait", id)).code == 0
    assert json.loads((await run("get", id)).printed)["status"] == end
    if end != "DELETED":
        assert (await run("rm", name)).code == 0


async def test_a_wait_that_is_too_short_names_what_a_verb_goes_on_with(run: Run, running: Up):
    name = new_name()
    await run(*CREATE, name)
    async with slow_provider(running):
        ran = await run("restart", name, "--timeout", "0.1s")
    assert ran.code == 4
    assert re.search(rf"(?m)^RESTART of {name} goes on, {BILLED}\.$", ran.said)
    assert (await run("wait", name)).code == 0
    assert (await run("rm", name)).code == 0


async def test_a_server_that_goes_away_during_a_wait_leaves_the_name_of_what_goes_on(
    run: Run, start: Start, running: Up
):
    name = new_name()
    async with slow_provider(running), FaultProxy(urlsplit(running.graphql_url).port or 0) as proxy:
        env = {"PILOTLIGHT_URL": f"http://127.0.0.1:{proxy.port}", "PILOTLIGHT_TOKEN": running.token}
        waiting = await start(*CREATE, name, env=env)
        assert waiting.stderr is not None
        assert name in (await asyncio.wait_for(waiting.stderr.readline(), 60)).decode()
        proxy.cut()
        _, said = await asyncio.wait_for(waiting.communicate(), 60)
    assert waiting.returncode == 5
    assert f"CREATE of {name} goes on, what it costs now is not known." in said.decode()
    assert (await run("rm", name)).code == 0


async def test_a_second_ctrl_c_ends_the_search_for_a_server_that_is_away(run: Run, start: Start, running: Up):
    name = new_name()
    async with slow_provider(running), FaultProxy(urlsplit(running.graphql_url).port or 0) as proxy:
        env = {"PILOTLIGHT_URL": f"http://127.0.0.1:{proxy.port}", "PILOTLIGHT_TOKEN": running.token}
        waiting = await start(*CREATE, name, env={**env, "PILOTLIGHT_RETRY_FOR": "60"})
        assert waiting.stderr is not None
        assert name in (await asyncio.wait_for(waiting.stderr.readline(), 60)).decode()
        proxy.cut()
        waiting.send_signal(signal.SIGINT)
        line = b""
        while b"; trying again for 6" not in line:
            line = await asyncio.wait_for(waiting.stderr.readline(), 30)
            assert line
        waiting.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(waiting.communicate(), 30)
    assert waiting.returncode == 130
    assert f"CREATE of {name} goes on, what it costs now is not known." in said.decode()
    assert (await run("rm", name)).code == 0


async def test_ctrl_c_between_two_requests_names_the_one_that_was_accepted(
    run: Run, running: Up, capsys: pytest.CaptureFixture[str]
):
    name = new_name()
    await run(*CREATE, name)

    def stop_two() -> None:
        def end(client: Pilotlight) -> Accepted:
            raise KeyboardInterrupt

        with Pilotlight(running.graphql_url, running.token) as client:
            request(client, "other", end, before=[client.stop(name)])

    async with slow_provider(running):
        with pytest.raises(typer.Exit) as ended:
            await asyncio.to_thread(stop_two)
    said = capsys.readouterr().err
    assert ended.value.exit_code == 130
    assert "`pilotlight get other` shows it" in said
    assert re.search(rf"(?m)^STOP of {name} goes on, {BILLED}\.$", said)
    assert (await run("rm", name)).code == 0


async def test_ctrl_c_while_waiting_names_what_goes_on(run: Run, start: Start, running: Up):
    name = new_name()
    async with slow_provider(running):
        waiting = await start(*CREATE, name)
        said = await interrupted(waiting)

    assert waiting.returncode == 130
    assert f"CREATE of {name} goes on, not billed now." in said
    assert f"pilotlight rm {name}" in said
    assert (await run("rm", name)).code == 0


async def test_ctrl_c_before_the_response_says_that_it_may_have_been_accepted(run: Run, start: Start, running: Up):
    name = new_name()
    async with FaultProxy(urlsplit(running.graphql_url).port or 0) as proxy:
        proxy.silence(up=False)
        env = {"PILOTLIGHT_URL": f"http://127.0.0.1:{proxy.port}", "PILOTLIGHT_TOKEN": running.token}
        asking = await start(*CREATE, name, env=env)

        async def is_accepted() -> bool:
            return (await run("get", name)).code == 0

        await until(is_accepted, pause=0.1)
        asking.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(asking.communicate(), 60)

    assert asking.returncode == 130
    assert f"`pilotlight get {name}` shows it" in said.decode()
    assert (await run("wait", name)).code == 0
    assert (await run("rm", name)).code == 0


async def test_ctrl_c_names_every_instance_that_goes_on(run: Run, start: Start, running: Up):
    prefix = new_name()
    names = [f"{prefix}-{number}" for number in range(2)]
    for name in names:
        await run(*CREATE, name, "--no-wait")
    for name in names:
        await run("wait", name)
    async with slow_provider(running):
        waiting = await start("stop", f"{prefix}-*", "--yes")
        said = await interrupted(waiting)
    assert waiting.returncode == 130
    named = re.findall(r"STOP of (\S+) goes on, billed at 0\.\d+ USD an hour\.", said)
    assert sorted(named) == names
    assert (await run("rm", f"{prefix}-*", "--yes")).code == 0
