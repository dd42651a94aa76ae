"""Every command for users against the simulator, compared with a stored transcript.

`until COMMAND` repeats it until it succeeds, `until COMMAND fails` until it does not; the last run is compared.
UPDATE_TRANSCRIPTS=1 writes the transcripts again; read the difference before it is committed.
"""

import os
import shlex
from pathlib import Path
from uuid import uuid4

import pytest

from tests.server.cli.user.conftest import Ran, Run
from tests.support.waiting import until

FOLDER = Path(__file__).parent / "transcripts"
CREATE = "create {name} --product 'RTX 4090 24GB' --image nginx"
STORIES = {
    "life": [
        "quote --product 'RTX 4090 24GB' --region AS-SGP-02 --billing ON_DEMAND -o table",
        CREATE + " --dry-run --region AS-SGP-02 --billing ON_DEMAND -o table",
        CREATE + " -p 80 -l team=vision -e MODE=fast --max-price 5 --max-duration 4h --yes -o table",
        "ls {name}* -o table",
        "ls {name}* -o wide",
        "ls {name}* -o name",
        "ls {name}* -s exited -o table",
        "get {name} -o table",
        "wait {name} -o name",
        "extend {name} 1h -o table",
        "update {name} -l team=speech --no-limits -o name",
        "stop {name} -o table",
        "stop {name} -o table",
        "start {name} --no-wait -o name",
        "wait {name} -o name",
        "restart {name} -o name",
        "move {name} -o name",
        "logs {name} --tail 1",
        "rm {name} -o table",
        "get {name} -o table",
    ],
    "money": [
        "budget create {name} 50 --period month -o table",
        "budget ls -o name",
        "budget rm {name}",
        "budget rm {name}",
        "volume create {name} --region AS-SGP-02 --size 5",
        "volume rm {name}",
        "volume create {name} --region AS-SGP-02 --size 10 -o table",
        "until volume grow {name} 30 -o table",
        "volume grow {name} 20",
        "volume rm {name} -o table",
        "until volume rm {name} fails",
        "volume ls -o name",
        "spend -o table",
        "spend --by colour",
        "market L40S --region EU-GB-01 -o table",
    ],
    "shells": [
        "completion bash",
        "completion zsh",
        "completion fish",
        "completion tcsh",
        "context ls",
        "token list -o name",
        "token revoke {name}",
    ],
    "refusals": [
        "create {name} --image nginx",
        "create {name} --product 'RTX 4090 24GB' --image nginx --gpus 99",
        "create {name} --product 'RTX 9090' --image nginx",
        "create {name} --product 'RTX 4090 24GB' --image nginx --max-duration soon",
        "create {name} --prodct x",
        "create {name} -f missing.yaml",
        "get nothing",
        "rm nothing*",
        "extend {name}",
        "update {name}",
        "cp here there",
        "context use nowhere",
    ],
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story_reads_as_stored(story: str, run: Run):
    name = f"cli-{uuid4().hex[:8]}"
    lines: list[str] = []
    for line in STORIES[story]:
        command = line.removeprefix("until ").removesuffix(" fails")
        words = command.format(name=name)
        if line.startswith("until "):
            ran = await _repeated(run, words, fails=line.endswith(" fails"))
        else:
            ran = await run(*shlex.split(words))
        lines.append(f"$ pilotlight {command}\n{ran.text.replace(name, '{name}')}")
    told = "\n".join(lines)

    stored = FOLDER / f"{story}.txt"
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        stored.write_text(told)
    assert told == stored.read_text()


async def _repeated(run: Run, command: str, *, fails: bool) -> Ran:
    """The first time that it succeeds, or fails: a worker makes and deletes volumes meanwhile."""
    ran = list[Ran]()

    async def is_so() -> bool:
        ran.append(await run(*shlex.split(command)))
        return (ran[-1].code != 0) is fails

    await until(is_so, pause=0.1)
    return ran[-1]
