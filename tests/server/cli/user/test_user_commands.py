"""What the commands for users do beside their transcripts: formats, exit codes, files, contexts, interrupts, ssh."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from pilotlight_client import AsyncPilotlight
from typer.main import get_command

from server.cli.main import app
from server.cli.user.exits import REFUSED, UNREACHABLE, UNREACHABLE_CODES, exit_code
from server.error_codes import BY_CODE
from tests.server.cli.user.conftest import Run, Start
from tests.support.processes import PILOTLIGHT, ROOT, Up, control, free_port, made

# docs/operating.md has these.
SERVER_COMMANDS = {
    "audit",
    "up",
    "serve",
    "worker",
    "simulate",
    "migrate",
    "encrypt",
    "restored",
    "doctor",
    "version",
    "provider",
    "schema",
}
CREATE = ("create", "--product", "RTX 4090 24GB", "--image", "nginx")


def new_name() -> str:
    return f"cli-{uuid4().hex[:8]}"


async def test_piped_output_is_json_with_the_names_of_the_schema(run: Run):
    name = new_name()
    created = json.loads((await run(*CREATE, name, "-l", "team=vision")).printed)
    assert (created["name"], created["status"], created["labels"]) == (name, "READY", {"team": "vision"})
    assert set(created["pricePerHour"]) == {"amountMicros", "currency"}

    (listed,) = json.loads((await run("ls", name)).printed)
    (line,) = (await run("ls", name, "-o", "jsonl")).printed.splitlines()
    (as_yaml,) = yaml.safe_load((await run("ls", name, "-o", "yaml")).printed)
    assert listed["id"] == json.loads(line)["id"] == as_yaml["id"] == created["id"]
    assert (await run("rm", name)).code == 0


async def test_a_file_holds_the_fields_of_the_input_and_options_win(run: Run, tmp_path: Path):
    name = new_name()
    file = tmp_path / "one.yaml"
    file.write_text("name: other\nproductName: RTX 4090 24GB\nimage: nginx\nlifetime:\n  maxDuration: 3600\n")

    created = json.loads((await run("create", name, "-f", str(file))).printed)

    assert (created["name"], created["lifetime"]["maxDuration"]) == (name, 3600)
    file.write_text("nam: x")
    misspelled = await run("create", "-f", str(file))
    assert misspelled.code == 2
    assert "did you mean 'name'?" in misspelled.said
    assert (await run("rm", name)).code == 0


async def test_the_same_key_creates_once(run: Run, running: Up):
    name, before = new_name(), await made(running.ready["simulatorUrl"])
    first = await run(*CREATE, name, "--key", name, "-o", "name")
    second = await run(*CREATE, name, "--key", name, "-o", "name")

    assert (first.code, second.code, second.printed) == (0, 0, f"{name}\n")
    assert await made(running.ready["simulatorUrl"]) == before + 1
    await run("rm", name)


async def test_a_pattern_stops_and_removes_all_that_match_if_confirmed(run: Run):
    prefix = new_name()
    names = sorted(f"{prefix}-{number}" for number in range(3))
    for name in names:
        await run(*CREATE, name, "--no-wait")
    for name in names:
        await run("wait", name)

    unconfirmed = await run("rm", f"{prefix}-*")
    assert (unconfirmed.code, "needs --yes" in unconfirmed.said) == (2, True)
    stopped = await run("stop", f"{prefix}-*", "--yes", "-o", "name")
    assert sorted(stopped.printed.split()) == names
    removed = await run("rm", f"{prefix}-*", "--yes", "-o", "name")
    assert (removed.code, sorted(removed.printed.split())) == (0, names)
    assert (await run("ls", f"{prefix}-*", "-s", "ready", "-o", "name")).printed == ""


async def test_ctrl_c_while_waiting_names_what_goes_on(run: Run, start: Start, running: Up):
    name = new_name()
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "latency", "seconds": 3}]})
    try:
        waiting = await start(*CREATE, name)
        assert waiting.stderr is not None
        assert name in (await waiting.stderr.readline()).decode()
        waiting.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(waiting.communicate(), 60)
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})

    assert waiting.returncode == 130
    assert f"CREATE of {name} goes on" in said.decode()
    assert f"pilotlight rm {name}" in said.decode()
    assert (await run("rm", name)).code == 0


async def test_a_wait_that_is_too_short_has_its_own_exit_code(run: Run):
    name = new_name()
    ran = await run(*CREATE, name, "--timeout", "0.01s")
    assert (ran.code, "It goes on" in ran.said) == (4, True)
    assert (await run("wait", name)).code == 0
    assert (await run("rm", name)).code == 0


async def test_a_failed_operation_has_its_own_exit_code(run: Run, running: Up):
    name = new_name()
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "pullFailure"}]})
    try:
        ran = await run(*CREATE, name)
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})
    assert (ran.code, "CREATE" in ran.said) == (3, True)
    assert (await run("rm", name)).code == 0


async def test_without_a_server_or_token_the_exit_code_is_five(run: Run, running: Up, tmp_path: Path):
    nowhere = await run("ls", env={"PILOTLIGHT_HOME": str(tmp_path)})
    assert (nowhere.code, "pilotlight up" in nowhere.said) == (5, True)
    away = f"http://127.0.0.1:{free_port()}"
    assert (await run("ls", env={"PILOTLIGHT_URL": away, "PILOTLIGHT_TOKEN": "pl_x"})).code == 5
    stranger = await run("ls", env={"PILOTLIGHT_URL": running.graphql_url, "PILOTLIGHT_TOKEN": "pl_x"})
    assert (stranger.code, "UNAUTHENTICATED" in stranger.said) == (5, True)
    assert stranger.said.endswith("\n  Send a valid token.\n")


async def test_contexts_are_stored_for_their_owner_only(run: Run, running: Up, tmp_path: Path):
    added = await run("context", "add", "here", running.graphql_url, input=f"{running.token}\n")
    assert added.code == 0
    file = tmp_path / "config" / "pilotlight" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    listed = await run("context", "ls")
    assert listed.printed == f"* here  {running.graphql_url}\n"
    assert running.token not in listed.printed
    assert (await run("ls", "no-such-*", env={"PILOTLIGHT_HOME": str(tmp_path)})).code == 0
    assert (await run("context", "rm", "here")).code == 0
    assert (await run("ls", env={"PILOTLIGHT_HOME": str(tmp_path)})).code == 5


async def test_tokens_are_listed_and_revoked(run: Run, running: Up):
    tokens = json.loads((await run("token", "list")).printed)
    assert "development" in [each["name"] for each in tokens]
    assert running.token not in json.dumps(tokens)
    assert (await run("token", "revoke", "no such token")).code == 1


@pytest.mark.parametrize("command", ["watch", "events"])
async def test_watch_and_events_write_a_line_per_change(command: str, start: Start, running: Up):
    name = new_name()
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        accepted = await client.create(name=name, product="RTX 4090 24GB", image="nginx")
        await client.wait(accepted, timeout=60)
        after = (
            (
                "--after",
                (await client.head()),
            )
            if command == "events"
            else ()
        )
        watching = await start(command, accepted.instance.id, *after)
        assert watching.stdout is not None
        if command == "watch":
            await watching.stdout.readline()  # as it is now: from here on, every change is seen
        await client.wait(await client.delete(name), timeout=60)
        seen = list[str]()
        while "DELETED" not in seen:
            line = await asyncio.wait_for(watching.stdout.readline(), 60)
            seen.append(json.loads(line)["status"])
    watching.kill()
    await watching.wait()


async def test_a_terminal_gets_a_table_and_one_line_that_is_rewritten(running: Up, tmp_path: Path):
    name = new_name()
    near, far = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *PILOTLIGHT,
        *CREATE,
        name,
        "--yes",
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PILOTLIGHT_HOME": str(running.home), "TERM": "xterm", "NO_COLOR": "1"},
        stdin=far,
        stdout=far,
        stderr=far,
    )
    os.close(far)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    shown = os.read(near, 65536).decode()
    os.close(near)
    assert f"\r\x1b[K{name}: CREATE" in shown
    assert "STATUS:" in shown
    assert "\x1b[3" not in shown  # no color
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        await client.delete(name)


async def test_ssh_passes_the_password_by_askpass_only(run: Run, start: Start, running: Up, tmp_path: Path):
    """A stand-in for ssh shows what it is given: the machine of the simulator has no SSH server."""
    name = new_name()
    await run(*CREATE, name)
    stand_in = tmp_path / "bin" / "ssh"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "args: $*"\necho "password: $("$SSH_ASKPASS" prompt)"\nexit 7\n')
    stand_in.chmod(0o755)

    called = await start("ssh", name, "--", "nvidia-smi", "-L", env={"PATH": f"{stand_in.parent}:{os.environ['PATH']}"})
    printed, _ = await called.communicate()

    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        access = await client.ssh_access(name)
        await client.delete(name)
    arguments, password = printed.decode().splitlines()
    assert called.returncode == 7
    assert access.password is not None
    assert access.password not in arguments
    assert password == f"password: {access.password}"
    assert "StrictHostKeyChecking=accept-new" in arguments
    assert arguments.endswith("nvidia-smi -L")


def test_every_error_code_of_the_server_has_an_exit_code_and_a_remedy():
    assert set(BY_CODE) >= UNREACHABLE_CODES
    assert {exit_code(code) for code in BY_CODE} == {REFUSED, UNREACHABLE}
    assert [code for code, each in BY_CODE.items() if not each.help] == []


async def test_completion_knows_commands_and_instances(run: Run, start: Start):
    name = new_name()
    await run(*CREATE, name)
    asked = {"_PILOTLIGHT_COMPLETE": "complete_bash", "COMP_WORDS": f"pilotlight get {name[:8]}", "COMP_CWORD": "2"}
    printed, _ = await (await start(env=asked)).communicate()
    assert name in printed.decode()
    assert "complete" in (await run("completion", "bash")).printed
    await run("rm", name)


async def test_a_list_costs_less_than_half_a_second_of_cpu(user_env: dict[str, str], tmp_path: Path):
    """The least of five: a busy machine only adds to what the command itself takes."""

    def cost() -> float:
        command = [*PILOTLIGHT, "ls", "no-such-*"]
        process = subprocess.Popen(command, cwd=tmp_path, env=user_env, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)  # of this process alone
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    costs = list[float]()
    while len(costs) < 5 and min(costs, default=1.0) >= 0.5:
        costs.append(await asyncio.to_thread(cost))
    assert min(costs) < 0.5, costs


def test_every_command_is_on_the_page_and_no_other():
    commands = {name for name, command in get_command(app).commands.items() if not command.hidden}  # type: ignore[attr-defined]
    page = (ROOT / "docs" / "cli.md").read_text()
    assert set(re.findall(r"^\| `pilotlight ([a-z]+)", page, re.MULTILINE)) == commands - SERVER_COMMANDS
