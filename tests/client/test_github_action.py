"""The steps of the GitHub Action, run as the runner runs them: whole, refused, and cancelled half-way."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psutil
import yaml
from pilotlight_client import AsyncPilotlight
from pilotlight_client.models import InstanceStatus

from server.cli.build_pages import find_npm
from tests.support.processes import PILOTLIGHT, ROOT, Up, control
from tests.support.waiting import until

ACTION = ROOT / "deploy" / "github-action"
DESCRIBED = yaml.safe_load((ACTION / "action.yml").read_text())


class Runner:
    """Runs a step with its inputs, and keeps what it writes to the runner's files."""

    def __init__(self, running: Up, folder: Path, **inputs: str) -> None:
        self.name = f"gh-test-{uuid4().hex[:8]}"
        self._folder = folder
        given = {
            "url": running.graphql_url,
            "token": running.token,
            "command": PILOTLIGHT[0],
            "product": "RTX 4090 24GB",
            "image": "nginx",
            "max-duration": "1h",
            "name": self.name,
            **inputs,
        }
        assert given.keys() <= DESCRIBED["inputs"].keys()
        defaults = {name: str(each.get("default", "")) for name, each in DESCRIBED["inputs"].items()}
        self._env = {
            "PATH": os.environ["PATH"],
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STATE": str(folder / "state"),
            "GITHUB_RUN_ID": "77",
            **{f"INPUT_{name.upper()}": value for name, value in {**defaults, **given}.items()},
        }

    async def start(self, step: str) -> asyncio.subprocess.Process:
        script = str(ACTION / DESCRIBED["runs"][step])
        env = {**self._env, **{f"STATE_{name}": value for name, value in self.written("state").items()}}
        node, pipe = (await find_npm()).node, asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(node, script, env=env, stdout=pipe, stderr=pipe)

    async def run(self, step: str) -> tuple[int | None, str]:
        process = await self.start(step)
        printed, said = await asyncio.wait_for(process.communicate(), 90)
        return process.returncode, printed.decode() + said.decode()

    def written(self, file: str) -> dict[str, str]:
        try:
            text = (self._folder / file).read_text()
        except FileNotFoundError:
            return {}
        return {name: value for name, _, value in re.findall(r"(\w+)<<(end_\S+)\n(.*?)\n\2\n", text, re.DOTALL)}


async def test_an_instance_lives_as_long_as_the_job(running: Up, client: AsyncPilotlight, tmp_path: Path):
    runner = Runner(running, tmp_path, options="--port=80\n--label=team=ci\n")

    code, said = await runner.run("main")
    assert code == 0, said
    outputs = runner.written("output")
    assert outputs.keys() == DESCRIBED["outputs"].keys()
    instance = await client.get(runner.name)
    assert (outputs["id"], instance.status, instance.labels) == (instance.id, "READY", {"team": "ci"})
    assert outputs["address"].startswith("http://")
    assert instance.lifetime is not None
    assert (instance.lifetime.on_end, instance.lifetime.max_duration) == ("DELETE", timedelta(hours=1))

    code, said = await runner.run("post")
    assert code == 0, said
    assert (await client.get(instance.id)).status == "DELETED"


async def test_a_refused_create_fails_the_step_and_leaves_nothing_to_delete(running: Up, tmp_path: Path):
    runner = Runner(running, tmp_path, product="RTX 9090")

    code, said = await runner.run("main")
    assert (code, "::error::pilotlight create ended with 1" in said) == (1, True)
    code, said = await runner.run("post")
    assert (code, "nothing to delete" in said) == (0, True)


async def test_a_step_that_is_killed_half_way_leaves_no_machine(running: Up, client: AsyncPilotlight, tmp_path: Path):
    runner = Runner(running, tmp_path)
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "latency", "seconds": 2}]})
    try:
        step = await runner.start("main")

        async def is_accepted() -> bool:
            return len([each async for each in client.list(name_starts_with=runner.name)]) == 1

        await until(is_accepted)
        async with killed_alone(step):
            code, said = await runner.run("post")
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})

    assert code == 0, said
    (left,) = [each async for each in client.list(name_starts_with=runner.name, statuses=["DELETED"])]
    assert left.name == runner.name


@asynccontextmanager
async def killed_alone(step: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """The step is gone, and what it started goes on for the length of the block."""
    commands = psutil.Process(step.pid).children(recursive=True)
    step.send_signal(signal.SIGKILL)
    await until(lambda: step.returncode is not None)  # wait() would wait for the commands, too: they have its pipes
    try:
        yield
    finally:
        for command in commands:
            with suppress(psutil.NoSuchProcess):
                command.kill()
        await asyncio.wait_for(step.communicate(), 60)


def late_command(folder: Path) -> Path:
    """`pilotlight`, but a create writes its process id and begins only after the post step has looked."""
    command = folder / "late-pilotlight"
    command.write_text(f"""#!/bin/sh
case $1 in
  create)
    echo $$ > {folder}/pid
    for _ in $(seq 300); do [ -e {folder}/looked ] && break; sleep 0.1; done
    exec {PILOTLIGHT[0]} "$@";;
  get) {PILOTLIGHT[0]} "$@"; code=$?; touch {folder}/looked; exit $code;;
  *) exec {PILOTLIGHT[0]} "$@";;
esac
""")
    command.chmod(0o755)
    return command


async def started_by(folder: Path) -> psutil.Process:
    await until(lambda: (folder / "pid").exists() and (folder / "pid").read_text().endswith("\n"))
    return psutil.Process(int((folder / "pid").read_text()))


async def test_a_step_that_is_cancelled_before_its_request_sends_none(
    running: Up, client: AsyncPilotlight, tmp_path: Path
):
    """The runner signals only the step's own process."""
    runner = Runner(running, tmp_path, command=str(late_command(tmp_path)))
    step = await runner.start("main")
    command = await started_by(tmp_path)

    step.send_signal(signal.SIGINT)
    printed, _ = await asyncio.wait_for(step.communicate(), 60)
    code, said = await runner.run("post")

    assert (step.returncode, "::error::pilotlight create ended with" in printed.decode()) == (1, True)
    assert (code, "nothing to delete" in said) == (0, True)
    await until(lambda: not command.is_running())
    assert [each async for each in client.list(name_starts_with=runner.name, statuses=list(InstanceStatus))] == []


async def test_a_create_that_outlives_its_step_is_deleted_when_it_arrives(
    running: Up, client: AsyncPilotlight, tmp_path: Path
):
    """The step is killed, its command is not, and sends the request only after the post step has looked."""
    runner = Runner(running, tmp_path, command=str(late_command(tmp_path)))
    step = await runner.start("main")
    await started_by(tmp_path)

    async with killed_alone(step):
        code, said = await runner.run("post")

    assert (code, "nothing to delete" in said) == (0, False), said
    (left,) = [each async for each in client.list(name_starts_with=runner.name, statuses=list(InstanceStatus))]
    assert left.status == "DELETED"


def test_the_token_is_no_argument():
    scripts = "".join(file.read_text() for file in ACTION.glob("*.js"))
    assert "--token" not in scripts
