"""One running Pilotlight, and commands that find it as a user's would."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from server.cli.main import app
from tests.support.databases import DatabaseMaker
from tests.support.processes import PILOTLIGHT, Up, up

NOT_SET = dict.fromkeys(("PILOTLIGHT_URL", "PILOTLIGHT_TOKEN", "PILOTLIGHT_CONTEXT", "NO_COLOR"))
VARIABLE = [
    # Which steps are seen on the way is a matter of time.
    (r"(?m)^! \S+: [A-Z]+ (?!OVER|.*waits for capacity)[A-Z_]+ \d+ %.*\n", ""),
    (r"(?m)^\d{4}-\d\d-\d\d .*\n", ""),  # days of `spend`, which other tests fill
    (r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d[+-].*\n", ""),  # parts of a history begin at whole hours
    (r"step \d+", "step <number>"),
    (r"\bqte_[\w-]{40,}", "<quote>"),
    (r"\b(inst|op|prod|tok|job|alr|bud|vol|evt)_[0-9a-f-]{16,}", r"<\1>"),
    (r'("(?:amountMicros|attempts|latency|version)": )[\d.]+', r"\1<number>"),
    (r'("(?:cursor|hint|novitaId|productId|version)": ?)"[^"]*"', r"\1<text>"),
    (r'"exhaustsAt": .*', '"exhaustsAt": <null or time>'),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d[+-]\d\d:\d\d", "<time>"),
    (
        r"(?m)(^! .*CREATE) .*(waits for capacity until <time>: number \d+).*\n(?:! .* waits for capacity .*\n)*",
        r"\1 \2\n",
    ),
    (r"\d{4}-\d\d-\d\dT[0-9:.]+\+00:00", "<time>"),
    (r"http://127\.0\.0\.1:\d+(/graphql)?", "<url>"),
    (r"\b\d+(\.\d+)? USD", "<price>"),
    (r"\b[A-Z]{2}-[A-Z]{2,}-\d\d", "<region>"),
    (r"\b\d+[dhms]( \d+[hms])?\b", "<for>"),
    (r"127\.0\.0\.1:\d+", "<address>"),
]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    code: int
    printed: str
    said: str

    @property
    def text(self) -> str:
        """Both outputs with what differs from run to run left out."""
        parts = [self.printed, *(f"! {line}\n" for line in self.said.splitlines()), f"exit {self.code}\n"]
        text = "".join(parts)
        for pattern, word in VARIABLE:
            text = re.sub(pattern, word, text)
        return re.sub(r" {2,}", "  ", text)


def compare(story: str, told: str) -> None:
    """With the stored transcript."""
    stored = Path(__file__).parent / "transcripts" / f"{story}.txt"
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        stored.write_text(told)
    assert told == stored.read_text()


Run = Callable[..., Awaitable[Ran]]
Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture(scope="package")
async def running(new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up(tmp_path_factory.mktemp("home"), env={"DATABASE_URL": await new_database.migrated()}) as running:
        yield running


@pytest.fixture
def user_env(running: Up, tmp_path: Path) -> dict[str, str]:
    """What a user beside `pilotlight up` has: its home, and no other configuration."""
    return {
        "PATH": os.environ["PATH"],
        "PILOTLIGHT_HOME": str(running.home),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PILOTLIGHT_RETRY_FOR": "1",
    }


@pytest.fixture
def run(user_env: dict[str, str]) -> Run:
    """Runs a command inside this process, in a thread: what a process of its own would add is 0.3 s of imports."""

    async def run(*words: str, env: dict[str, str] | None = None, input: str = "") -> Ran:
        given: dict[str, str | None] = {**NOT_SET, **user_env, **(env or {})}
        result = await asyncio.to_thread(CliRunner().invoke, app, words, env=given, input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def start(user_env: dict[str, str], tmp_path: Path) -> Start:
    """Starts a command as a process of its own."""

    async def start(*words: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        environment = {**user_env, **(env or {})}
        return await asyncio.create_subprocess_exec(
            *PILOTLIGHT,
            *words,
            cwd=tmp_path,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )

    return start
