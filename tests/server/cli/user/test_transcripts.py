"""Every command for users against the simulator, compared with a stored transcript.

`until COMMAND` repeats it until it succeeds, `until COMMAND is empty` until it prints nothing; the last is compared.
`^C at WORD: COMMAND` sends Ctrl-C once it has written the word; `COMMAND < TEXT` gives it standard input.
UPDATE_TRANSCRIPTS=1 writes the transcripts again; read the difference before it is committed.
"""

import asyncio
import re
import shlex
import signal
from collections.abc import Iterator
from uuid import uuid4

import aiohttp
import pytest
from pilotlight_client import AsyncPilotlight
from typer.main import get_command

from server.cli.main import app
from tests.server.cli.user.conftest import Ran, Run, Start, compare
from tests.server.cli.user.test_ssh import STORY as SSH
from tests.server.cli.user.test_user_commands import SERVER_COMMANDS
from tests.support.processes import Up, control
from tests.support.waiting import until

INITIALIZE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": '
    '{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}'
)
CREATE = "create {name} --product 'RTX 4090 24GB' --image nginx"
LINE = re.compile(r"(until |\^C at (?P<word>\S+): )?(?P<command>.*?)(?P<is_empty> is empty)?( < (?P<given>.*))?")
STORIES = {
    "life": [
        "quote --product 'RTX 4090 24GB' --region AS-SGP-02 --billing ON_DEMAND -o table",
        CREATE + " --dry-run --region AS-SGP-02 --billing ON_DEMAND -o table",
        "quote --product 'RTX 4090 24GB' --gpus 99",
        CREATE + " --quote-id qte_x --no-wait",
        CREATE + " --max-price-drift 2 --no-wait",
        "quote --product 'RTX 4090 24GB' --region AS-SGP-02 --billing ON_DEMAND",
        "quote --cpu --product 'CPU 4C 8GB' --region US-CA-06 --billing ON_DEMAND -o table",
        CREATE + " -p 80 -l team=vision -e MODE=fast --max-price 5 --max-duration 4h --yes -o table",
        "ls {name}* -o table",
        "ls {name}* -o wide",
        "ls {name}* -o name",
        "ls {name}* -s exited -o table",
        "get {name} -o table",
        "get {name}",
        "ls {name}* -o jsonl",
        "wait {name} -o name",
        "^C at READY: watch {name} -o table",
        "^C at instance.created: events {name} --after {cursor} --type instance.created -o table",
        "^C at instance.ready: events {name} --after {cursor} --type instance.ready",
        "events {name} --type instance.redy",
        "events --type budget.threshold",
        "events {name} --past --type instance.ready -o table",
        "extend {name} 1h -o table",
        "update {name} -l team=speech --no-limits -o name",
        "update {name} --name {name}-b -o table",
        "update {name}-b --name {name}",
        "extend {name} --until 2099-01-01T00:00",
        "stop {name} -o table",
        "stop {name} -o table",
        "start {name} --no-wait -o name",
        "wait {name} -o name",
        "restart {name}",
        "move {name}",
        "logs {name} --tail 1",
        "^C at step: logs {name} -f --tail 1",
        "logs {name} -f --tail 300",
        "rm {name} -o table",
        "get {name} -o table",
    ],
    "money": [
        "budget create {name} 50 --period month -o table",
        "budget ls -o name",
        "budget ls",
        "budget rm {name}",
        "budget rm {name}",
        "volume create {name} --region AS-SGP-02 --size 5",
        "volume rm {name}",
        "volume create {name} --region AS-SGP-02 --size 10 -o table",
        "until volume grow {name} 30 -o table",
        "volume grow {name} 20",
        "volume ls -o jsonl",
        "volume rm {name} -o table",
        "until volume ls -o name is empty",
        "volume rm {name}",
        "spend -o table",
        "spend --by colour",
        "spend --by label",
        "spend --since soon",
        "budget create {name} 50 --period quarter",
    ],
    "market": [
        "market L40S --region EU-GB-01 -o table",
        "market H100 --region EU-GB-01 -o jsonl",
        "market 'RTX 4090 24GB' --history -o table",
        "market 'RTX 4090 24GB' --history --region CN-HK-01 --since 1h --bucket 1h -o table",
        "alert create --product 'RTX 4090 24GB' --billing spot --max-price 0.0001 -o table",
        "alert create --gpus 9",
        "alert ls -o table",
        "alert ls",
        "alert rm alr_x",
        "alert rm {alert}",
        CREATE + " --priority 80 --no-wait",
        CREATE + " --wait-for-capacity 1s --no-wait",
        CREATE + " --wait-for-capacity 2h --priority 101 --no-wait",
        CREATE + " --region CN-HK-01 --billing SPOT --wait-for-capacity 2h --priority 80 --no-wait -o name",
        "^C at capacity: wait {name}",
        "update-wait {name} --wait-for-capacity 4h --priority 90 -o name",
        "update-wait {name}",
        "rm {name} -o name",
        "update-wait {name} --priority 1",
        "^C at capacity: " + CREATE + " --region CN-HK-01 --billing SPOT --wait-for-capacity 2h --max-duration 4h",
        "rm {name} -o name",
    ],
    "shells": [
        "completion bash",
        "completion zsh",
        "completion fish",
        "completion tcsh",
        "context ls",
        "context add here nowhere",
        "context add here {url} < {token}",
        "context use here",
        "context ls",
        "context ls -o table",
        "context ls -o name",
        "context rm here",
        "mcp < " + INITIALIZE,
        "token list -o name",
        "token list",
        "token revoke {name}",
        "token revoke {name}-token",
        "token revoke {name}-token",
    ],
    "refusals": [
        "create {name} --image nginx",
        "create {name} --product 'RTX 4090 24GB' --image nginx --gpus 99",
        "create {name} --product 'RTX 9090' --image nginx",
        "create {name} --product 'RTX 4090 24GB' --image nginx --max-duration soon",
        "create {name} --product 'RTX 4090 24GB'",
        CREATE + " --billing spto",
        CREATE + " --on-end vanish",
        CREATE + " --max-price NaN",
        "create {name} --prodct x",
        "create {name} -f missing.yaml",
        "get nothing",
        "ls -s raedy",
        "rm nothing*",
        "extend {name}",
        "update {name}",
        "cp here there",
        "context use nowhere",
    ],
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story_reads_as_stored(story: str, run: Run, start: Start, running: Up):
    name = f"cli-{uuid4().hex[:8]}"
    values = {"name": name, "url": running.graphql_url}
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        values["cursor"] = await client.head()
        if story == "shells":
            await _new_token(running, f"{name}-token")
        if story == "market":
            await _set_stock(running, 0)
        lines: list[str] = []
        for line in STORIES[story]:
            found = LINE.fullmatch(line)
            assert found is not None
            if "{alert}" in line:
                values["alert"] = (await anext(client.alerts())).id
            words = shlex.split(found["command"].format(**values))
            if line.startswith("until "):
                ran = await _repeated(run, words, is_empty=found["is_empty"] is not None)
            elif found["word"]:
                ran = await _interrupted(await start(*words), found["word"])
            else:
                given = (found["given"] or "").replace("{token}", running.token)
                ran = await run(*words, input=f"{given}\n")
            shown = line.removeprefix("until ").removesuffix(" is empty")
            lines.append(f"$ pilotlight {shown}\n{ran.text.replace(name, '{name}')}")
        if story == "market":
            await _set_stock(running, 16)
    compare(story, "\n".join(lines))


def test_every_command_for_users_has_a_transcript():
    found = [LINE.fullmatch(line) for lines in [*STORIES.values(), SSH] for line in lines]
    said = [f"{each['command']} " for each in found if each is not None]
    assert [each for each in sorted(_commands()) if not any(line.startswith(f"{each} ") for line in said)] == []


def _commands() -> Iterator[str]:
    """`ls`, `alert create`, ... without those of the server."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if name not in SERVER_COMMANDS and not command.hidden:
            parts = [f"{name} {part}" for part in getattr(command, "commands", ())]
            yield from (part for part in parts or [name] if part != "token create")  # it works on the database


async def _set_stock(running: Up, free: int) -> None:
    stock = {"productId": "27", "clusterId": "cn-hongkong-1", "free": free}  # no other test asks for it
    await control(running.ready["simulatorUrl"], "stock", stock)


async def _new_token(running: Up, name: str) -> None:
    create = "mutation ($input: CreateTokenInput!) { createToken(input: $input) { errors { code } } }"
    body = {"query": create, "variables": {"input": {"name": name, "role": "READER"}}}
    headers = {"authorization": f"Bearer {running.token}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.post(running.graphql_url, json=body) as response:
        assert (await response.json())["data"]["createToken"] == {"errors": []}


async def _interrupted(process: asyncio.subprocess.Process, word: str) -> Ran:
    """Ctrl-C once the word is there."""
    texts, is_there = ["", ""], asyncio.Event()

    async def read(stream: asyncio.StreamReader | None, at: int) -> None:
        assert stream is not None
        async for line in stream:
            texts[at] += line.decode()
            if word in texts[at]:
                is_there.set()
        is_there.set()

    reading = asyncio.gather(read(process.stdout, 0), read(process.stderr, 1))
    await asyncio.wait_for(is_there.wait(), 60)
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    await asyncio.wait_for(reading, 60)
    return Ran(await process.wait(), *texts)


async def _repeated(run: Run, words: list[str], *, is_empty: bool) -> Ran:
    """The first time that it succeeds, or prints nothing: a worker makes and deletes volumes meanwhile."""
    ran = list[Ran]()

    async def is_so() -> bool:
        ran.append(await run(*words))
        return ran[-1].code == 0 and (not is_empty or ran[-1].text == "exit 0\n")

    await until(is_so, pause=0.1)
    return ran[-1]
