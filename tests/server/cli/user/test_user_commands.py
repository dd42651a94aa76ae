"""What the commands for users do beside their transcripts: formats, exit codes, files, contexts, interrupts, ssh."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from pilotlight_client import AsyncPilotlight, Money
from typer.main import get_command

from server.cli.main import app
from server.cli.user.exits import REFUSED, UNREACHABLE, UNREACHABLE_CODES, exit_code
from server.cli.user.progress import describe
from server.error_codes import BY_CODE, requests
from tests.server.cli.user.conftest import Run, Start
from tests.support.processes import PILOTLIGHT, ROOT, Up, control, free_port, made
from tests.support.waiting import until

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


async def test_a_quote_is_created_at_its_price_or_not_at_all(run: Run, running: Up):
    name, before = new_name(), await made(running.ready["simulatorUrl"])
    wanted = ("--product", "RTX 4090 24GB", "--max-duration", "4h")
    offer = json.loads((await run("quote", *wanted)).printed)
    assert (offer["best"]["rank"], offer["maxCost"]["currency"]) == (1, "USD")
    held = (await run("quote", *wanted, "-o", "name")).printed.strip()

    other = await run(*CREATE, name, "--max-duration", "5h", "--quote-id", held)
    assert (other.code, "QUOTE_MISMATCH" in other.said) == (1, True)
    assert await made(running.ready["simulatorUrl"]) == before
    created = await run(*CREATE, name, "--max-duration", "4h", "--quote-id", held, "--max-price-drift", "0.1")
    assert created.code == 0, created.said

    instance = json.loads(created.printed)
    assert (instance["region"], instance["billingMode"]) == (offer["best"]["region"], offer["best"]["billingMode"])
    assert (await run("rm", name)).code == 0


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


def test_the_line_of_a_wait_has_phase_region_refusal_price_and_next_end():
    tried: Any = SimpleNamespace(region="EU-GB-01", price_per_hour=Money(350_000), reason_code="OUT_OF_STOCK")
    nothing = dict.fromkeys(("queue", "wait", "last_error", "estimated_ready_at", "finished_at"))
    operation: Any = SimpleNamespace(kind="CREATE", phase="PLACING", progress=10, attempts=[tried], **nothing)
    limits: Any = SimpleNamespace(on_end="DELETE", max_duration=timedelta(hours=4), next=None)
    tells = "web: CREATE PLACING 10 %, EU-GB-01 at 0.35 USD/h: OUT_OF_STOCK"

    assert describe("web", operation, limits) == f"{tells}, DELETE after 4h"
    limits.next = SimpleNamespace(action="DELETE", at=datetime.now(UTC) + timedelta(hours=3, minutes=59, seconds=50))
    assert describe("web", operation, limits) == f"{tells}, DELETE in 3h 59m"
    end = datetime(2030, 1, 1, 12, tzinfo=UTC)
    operation.wait = SimpleNamespace(until=end, position=2, blocked_by="CAPACITY")
    at = end.astimezone().isoformat(sep=" ", timespec="minutes")
    assert f"10 %, waits for capacity until {at}: number 2, CAPACITY, EU-GB-01" in describe("web", operation, limits)
    operation.kind = "STOP"
    assert "DELETE" not in describe("web", operation, limits)


async def test_a_create_mounts_volumes_by_name_and_takes_tools_and_an_entrypoint(run: Run):
    name = new_name()
    made = await run("volume", "create", name, "--region", "AS-SGP-02", "--size", "10")
    (volume,) = json.loads(made.printed)

    async def is_there() -> bool:
        return json.loads((await run("volume", "ls", "-o", "json")).printed)[0]["status"] == "AVAILABLE"

    await until(is_there, pause=0.1)
    options = ("--volume", f"{name}:/data", "--tool", "ssh", "--entrypoint", "sh", "--command", "-c true", "--no-wait")
    created = await run(*CREATE, name, *options)
    assert created.code == 0, created.said
    instance = json.loads(created.printed)
    assert instance["volumes"] == [{"mountPath": "/data", "volumeId": volume["id"]}]
    assert [each["name"] for each in instance["tools"]] == ["SSH"]
    assert (instance["entrypoint"], instance["regions"]) == ("sh", ["AS-SGP-02"])
    malformed = await run(*CREATE, "x", "--volume", name)
    assert (malformed.code, "NAME:/PATH" in malformed.said) == (2, True)
    missing = await run(*CREATE, "x", "--volume", "nothing:/data")
    assert (missing.code, "there is no 'nothing'" in missing.said) == (1, True)
    await run("rm", name)
    await run("volume", "rm", name)


async def test_logs_of_the_container_and_of_the_machine_are_followed(run: Run, start: Start):
    name = new_name()
    await run(*CREATE, name)

    for which in ((), ("--system",)):
        following = await start("logs", name, "-f", *which)
        assert following.stdout is not None
        line = (await asyncio.wait_for(following.stdout.readline(), 60)).decode()
        here = (await run("logs", name)).printed.splitlines()  # a line for the run, then its steps
        wanted = "started nginx, run 1" if which else f"working, step {len(here) + 1}"
        while wanted not in line:
            line = (await asyncio.wait_for(following.stdout.readline(), 60)).decode()
            assert line
        following.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(following.communicate(), 60)
        assert (following.returncode, said) == (130, b"")
    await run("rm", name)


async def test_a_wait_that_is_too_short_has_its_own_exit_code(run: Run):
    name = new_name()
    ran = await run(*CREATE, name, "--timeout", "0.01s")
    # It may have its machine by now.
    cost = r"(not billed now|may be billed: its machine is being searched for|billed at \S+( \S+)? an hour)\."
    assert (ran.code, re.search(f"CREATE of {name} goes on, {cost}", ran.said) is not None) == (4, True), ran.said
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
    assert json.loads(listed.printed) == [{"name": "here", "url": running.graphql_url, "isCurrent": True}]
    shown = await run("context", "ls", "-o", "table")
    assert [line.split() for line in shown.printed.splitlines()] == [
        ["CURRENT", "NAME", "URL"],
        ["*", "here", running.graphql_url],
    ]
    assert running.token not in listed.printed + shown.printed
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
    later = {each.code for each in requests.CODES if each.retryable} - {"PERSISTED_QUERY_NOT_FOUND"}
    assert later | {"UNAUTHENTICATED", "UNKNOWN_HOST", "INTERNAL"} == UNREACHABLE_CODES
    assert {code: exit_code(code) for code in BY_CODE} == {
        code: UNREACHABLE if code in UNREACHABLE_CODES else REFUSED for code in BY_CODE
    }
    assert [code for code, each in BY_CODE.items() if not each.help] == []


async def test_each_error_of_a_request_ends_with_its_code_exit_code_and_remedy(run: Run):
    asked = list[str]()

    async def answer(request: web.Request) -> web.Response:
        extensions = {"code": asked[-1], "retryable": bool(BY_CODE[asked[-1]].retryable)}
        return web.json_response({"errors": [{"message": "No.", "extensions": extensions}]})

    app = web.Application()
    app.router.add_post("/graphql", answer)
    async with TestServer(app) as server:
        env = {"PILOTLIGHT_URL": str(server.make_url("")), "PILOTLIGHT_TOKEN": "pl_x", "PILOTLIGHT_RETRY_FOR": "0"}
        for each in requests.CODES:
            asked.append(each.code)
            ran = await run("ls", env=env)
            expected = UNREACHABLE if each.code in UNREACHABLE_CODES else REFUSED
            assert (ran.code, ran.said) == (expected, f"pilotlight: {each.code}: No.\n  {BY_CODE[each.code].help}\n")


async def test_completion_knows_commands_and_instances(run: Run, start: Start):
    name = new_name()
    await run(*CREATE, name)
    asked = {"_PILOTLIGHT_COMPLETE": "complete_bash", "COMP_WORDS": f"pilotlight get {name[:8]}", "COMP_CWORD": "2"}
    printed, _ = await (await start(env=asked)).communicate()
    assert name in printed.decode()
    assert "complete" in (await run("completion", "bash")).printed
    await run("rm", name)


async def test_a_list_costs_less_than_half_a_second_of_cpu(run: Run, user_env: dict[str, str], tmp_path: Path):
    """The least of five: a busy machine only adds to what the command itself takes."""

    def cost() -> float:
        command = [*PILOTLIGHT, "ls", "-o", "name"]
        printed = tmp_path / "printed"
        with printed.open("w") as file:
            process = subprocess.Popen(command, cwd=tmp_path, env=user_env, stdout=file)
            _, status, used = os.wait4(process.pid, 0)  # of this process alone
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert name in printed.read_text().splitlines()
        return used.ru_utime + used.ru_stime

    name = new_name()
    await run(*CREATE, name, "--no-wait")
    costs = list[float]()
    while len(costs) < 5 and min(costs, default=1.0) >= 0.5:
        costs.append(await asyncio.to_thread(cost))
    await run("rm", name)
    assert min(costs) < 0.5, costs


def test_every_command_is_on_the_page_and_no_other():
    commands = {name for name, command in get_command(app).commands.items() if not command.hidden}  # type: ignore[attr-defined]
    page = (ROOT / "docs" / "cli.md").read_text()
    assert set(re.findall(r"^\| `pilotlight ([a-z-]+)", page, re.MULTILINE)) == commands - SERVER_COMMANDS
