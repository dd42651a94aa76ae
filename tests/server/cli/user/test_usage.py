"""What a user may mistype, and what may be written in several ways: options, files, addresses, commands for ssh."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pilotlight_client import AsyncPilotlight

from tests.server.cli.user.conftest import Run, Start
from tests.server.cli.user.test_user_commands import CREATE, new_name
from tests.support.processes import Up, free_port

FILE = """
productName: RTX 4090 24GB
image: nginx
maxHourlyPrice: 0.5
env: {DEBUG: 1}
ports: [80, 22/tcp, {port: 8080}]
lifetime:
  maxDuration: 4h
  deadline: 2099-12-24
  idle: {window: 30m}
"""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("create", "x", "--product", "y"), "missing: --image or --template"),
        (("create",), "missing: NAME, --product, --image or --template"),
        ((*CREATE, "x", "--billing", "spto"), "--billing has no value 'spto'; did you mean SPOT?"),
        ((*CREATE, "x", "--on-end", "vanish"), "--on-end has no value 'vanish'; there are DELETE, STOP"),
        ((*CREATE, "x", "--tool", "shh"), "did you mean SSH?"),
        ((*CREATE, "x", "--max-price", "NaN"), "'NaN' is not a price"),
        ((*CREATE, "x", "--max-price", "inf"), "'inf' is not a price"),
        ((*CREATE, "x", "--max-price", "0.0000001"), "'0.0000001' is not a price"),
        ((*CREATE, "x", "--max-duration", "99999999999d"), "at most 3650d"),
        (("ls", "-s", "raedy"), "--status has no value 'raedy'; did you mean READY?"),
        (("budget", "create", "x", "5", "--period", "quarter"), "there are DAY, MONTH, TOTAL, WEEK"),
        (("budget", "create", "x", "5", "--action", "stp"), "did you mean STOP?"),
        (("market", "x", "--history", "--region", "y", "--billing", "spt"), "did you mean SPOT?"),
        (("alert", "create", "--billing", "spt"), "did you mean SPOT?"),
        (("spend", "--since", ""), "'' is neither a length nor a time"),
        (("spend", "--by", "label"), "--by label=NAME"),
        (("context", "add", "x", "nowhere"), "'nowhere' is not the address of a server"),
        (("stpo", "x"), "Did you mean 'stop'"),
    ],
)
async def test_a_mistake_is_named_before_anything_is_requested(words: tuple[str, ...], hint: str, run: Run):
    ran = await run(*words, input="token\n", env={"PILOTLIGHT_URL": f"http://127.0.0.1:{free_port()}"})
    assert (ran.code, hint in ran.said) == (2, True), ran.said


async def test_words_of_the_schema_are_taken_in_any_case(run: Run):
    ran = await run(*CREATE, "x", "--billing", "on_demand", "--dry-run")
    assert ran.code == 0, ran.said
    assert {each["billingMode"] for each in json.loads(ran.printed)["candidates"] if each["accepted"]} == {"ON_DEMAND"}


async def test_a_file_takes_values_as_the_options_write_them(run: Run, tmp_path: Path):
    name, file = new_name(), tmp_path / "one.yaml"
    file.write_text(FILE)

    ran = await run("create", name, "-f", str(file), "--no-wait")
    assert ran.code == 0, ran.said
    made = json.loads(ran.printed)
    assert made["maxHourlyPrice"] == {"amountMicros": 500_000, "currency": "USD"}
    assert [(each["port"], each["type"]) for each in made["ports"]] == [(80, "http"), (22, "tcp"), (8080, "http")]
    limits = made["lifetime"]
    assert (limits["maxDuration"], limits["idle"]["window"]) == (14_400, 1800)
    assert datetime.fromisoformat(limits["deadline"]) == datetime(2099, 12, 24).astimezone().astimezone(UTC)
    assert (await run("rm", name)).code == 0

    for wrong, field in (("4h", "soon"), ("2099-12-24", "soon"), ("0.5", "cheap"), ("22/tcp", "ssh")):
        file.write_text(FILE.replace(wrong, field))
        ran = await run("create", name, "-f", str(file))
        assert (ran.code, f"{field!r} is not" in ran.said, str(file) in ran.said) == (2, True, True), ran.said


async def test_past_events_are_shown_and_the_command_ends(run: Run):
    name = new_name()
    await run(*CREATE, name)
    id = json.loads((await run("get", name)).printed)["id"]

    past = await run("events", name, "--past")
    types = [json.loads(line)["type"] for line in past.printed.splitlines()]
    assert (past.code, types[0], "instance.ready" in types) == (0, "instance.created", True)
    cursor = json.loads(past.printed.splitlines()[0])["cursor"]
    later = await run("events", id, "--past", "--after", cursor, "--type", "instance.ready", "-o", "table")
    (line,) = later.printed.splitlines()
    assert f"  {name}  instance.ready" in line
    table = (await run("events", name, "--past", "-o", "table")).printed.splitlines()
    assert {line.split()[1] for line in table} == {name}  # also of events without a snapshot of the instance
    assert (await run("rm", name)).code == 0


async def test_what_was_spent_is_shown_by_the_names_of_instances_and_tokens(run: Run):
    name = new_name()
    await run(*CREATE, name)
    assert (await run("rm", name)).code == 0
    by_instance = (await run("spend", "--by", "instance", "-o", "table")).printed
    assert [line.split()[1] for line in by_instance.splitlines() if line.startswith(f"{name} ")] != []
    by_token = (await run("spend", "--by", "token", "-o", "table")).printed
    assert any(line.startswith("development ") for line in by_token.splitlines())


async def test_options_of_a_command_for_ssh_need_no_dashes_before_it(
    run: Run, start: Start, running: Up, tmp_path: Path
):
    name = new_name()
    await run(*CREATE, name)
    for program in ("ssh", "scp"):
        stand_in = tmp_path / "bin" / program
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text('#!/bin/sh\necho "$*"\n')
        stand_in.chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}

    async def called(*words: str) -> str:
        printed, said = await (await start(*words, env=env)).communicate()
        return printed.decode().strip() or said.decode()

    assert (await called("ssh", name, "nvidia-smi", "-L")).endswith(" nvidia-smi -L")
    assert (await called("ssh", name, "--", "nvidia-smi", "-L")).endswith(" nvidia-smi -L")
    copied = await called("cp", "./10:30.log", f"{name}:/logs/")
    assert " ./10:30.log " in copied
    assert copied.endswith(":/logs/")
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        await client.delete(name)


async def test_an_address_without_a_server_is_refused_and_a_server_that_is_away_retried(run: Run, start: Start):
    app = web.Application()
    async with TestServer(app) as server:
        env = {"PILOTLIGHT_URL": str(server.make_url("")), "PILOTLIGHT_TOKEN": "pl_x", "PILOTLIGHT_RETRY_FOR": "600"}
        wrong = await run("ls", env=env)
    assert (wrong.code, "is not the address of a Pilotlight server: HTTP 404" in wrong.said) == (5, True), wrong.said

    address = f"127.0.0.1:{free_port()}"
    url, refused = f"http://{address}", f"can't connect to {address} (Connection refused)"
    away = await start("ls", env={**env, "PILOTLIGHT_URL": url, "PILOTLIGHT_RETRY_FOR": "1"})
    _, said = await away.communicate()
    first, last, hint = said.decode().splitlines()
    assert first == f"no response from {url}/graphql: {refused}; trying again for 1 s"
    assert (away.returncode, last) == (5, f"pilotlight: no response from {url}/graphql: {refused}")
    assert "pilotlight context ls" in hint

    misspelled = await run("ls", env={"PILOTLIGHT_RETRY_FOR": "soon"})
    assert (misspelled.code, "has to be a number of seconds" in misspelled.said) == (2, True)
