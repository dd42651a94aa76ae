"""Every command for users against the simulator, compared with a stored transcript.

UPDATE_TRANSCRIPTS=1 writes the transcripts again; read the difference before it is committed.
"""

import os
import shlex
from pathlib import Path
from uuid import uuid4

import pytest

from tests.server.cli.user.conftest import Run

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
        "spend --by colour",
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
        "completion tcsh",
        "context use nowhere",
    ],
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story_reads_as_stored(story: str, run: Run):
    name = f"cli-{uuid4().hex[:8]}"
    lines: list[str] = []
    for command in STORIES[story]:
        ran = await run(*shlex.split(command.format(name=name)))
        lines.append(f"$ pilotlight {command}\n{ran.text.replace(name, '{name}')}")
    told = "\n".join(lines)

    stored = FOLDER / f"{story}.txt"
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        stored.write_text(told)
    assert told == stored.read_text()
