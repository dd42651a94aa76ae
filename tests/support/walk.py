"""Records which functions one createInstance goes through, and writes them down as docs/walk.md (`make walk`).

A create is sent several times to a running server with a subscriber. A function is listed if each recording has it:
caches that fill at the first request leave no trace. A profiler sees every call; two wrappers mark what is called for
the HTTP request and for the job, also in tasks that these start.
"""

import asyncio
import functools
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from server.auth.tokens import DEFAULT_PROJECT, create_token, new_secret
from server.db.database import Database
from server.enums import Role
from server.http.security import SecurityMiddleware
from server.observe import logs
from server.queue.runner import Runner
from tests.support import postgres
from tests.support.api_server import Server, serving
from tests.support.databases import DatabaseMaker
from tests.support.waiting import until
from tests.support.world import a_simulator

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "walk.md"
RECORDINGS = 4
KIND = "CREATE_INSTANCE"

REQUEST, JOB, EVENTS, OTHER = "request", "job", "events", "other"
STEP: ContextVar[str | None] = ContextVar("STEP", default=None)
# What tasks that live as long as the process do with an event; other work of such tasks is not part of the walk.
OF_EVENTS = ("server/events/", "server/graphql/live/", "server/graphql/transports/", "schema/")
# Timers call functions of the live tasks when nothing happens, too. What is seen in this time without a request is left
# out, but for the two loops that also carry the events. Longer than any of the timers' intervals, which are up to 1 s.
IDLE_SECONDS = 2.5
LOOPS = {"Sequencer._lead", "Sequencer._with_timeout", "Tail._follow"}
# The provider's stand-in, and what counts and logs beside every call.
LEFT_OUT = ("server/simulator/", "server/observe/", "server/config", "server/errors.py")

CREATE = """
    mutation Walk%d {
      createInstance(input: {name: "walk-%d", productName: "RTX 4090 24GB", image: "nginx", ports: [{port: 80}]}) {
        instance { id } operation { id } errors { code message }
      }
    }
"""
SUBSCRIPTION = "subscription { instanceEvents { type status instanceSnapshot { instanceId status } } }"

SECTIONS = {
    REQUEST: (
        "The request",
        "From the HTTP request to the committed rows: instance, operation, event, job and quota in one transaction.",
        (
            ("HTTP", ("server/http/",)),
            ("GraphQL", ("server/graphql/",)),
            ("Schema", ("schema/",)),
            ("Domain", ("server/instances/", "server/catalog/", "server/novita/", "server/cache/", "server/auth/")),
            ("Rows", ("server/queue/", "server/events/", "server/webhooks/", "server/db/")),
            ("Shared", ("server/",)),
        ),
    ),
    JOB: (
        "The job",
        "A worker has claimed the job. The handler calls the provider and writes what came of it.",
        (
            ("Queue", ("server/queue/",)),
            ("Job", ("server/jobs/",)),
            ("Provider", ("server/novita/",)),
            ("Domain", ("server/instances/", "server/catalog/", "server/cache/", "server/auth/")),
            ("Rows", ("server/events/", "server/webhooks/", "server/db/")),
            ("Shared", ("server/",)),
        ),
    ),
    EVENTS: (
        "The subscription message",
        "The sequencer numbers the committed event, the tail reads it, and each subscriber gets one message.",
        (
            ("Events", ("server/events/",)),
            ("Schema", ("schema/",)),
            ("Subscribers", ("server/graphql/",)),
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the product."""

    file: str
    line: int
    name: str
    sentence: str

    @property
    def is_listed(self) -> bool:
        """Left out are private helpers without a docstring and constructors."""
        last = self.name.rpartition(".")[2]
        if "<" in self.name or (last.startswith("__") and last != "__call__"):
            return False
        return bool(self.sentence) or not last.startswith("_")


class Recorder:
    """Collects calls while `is_on`; one set of functions for each step, in the order of their first calls."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: dict[str, dict[CodeType, None]] = {}

    def begin(self) -> None:
        self.calls = {REQUEST: {}, JOB: {}, EVENTS: {}}
        self.is_on = True

    def end(self) -> dict[str, list[Function]]:
        self.is_on = False
        return {step: [_function(code) for code in calls] for step, calls in self.calls.items()}

    def see(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Called by Python at every call and return of the thread."""
        if event != "call" or not self.is_on:
            return
        file = _path(frame.f_code.co_filename)
        if file is None:
            return
        step = STEP.get() or (EVENTS if file.startswith(OF_EVENTS) else None)
        if step in self.calls:
            self.calls[step].setdefault(frame.f_code)


@functools.cache
def _path(filename: str) -> str | None:
    """The path of a product file that is part of the walk, from the root of the project; None for any other."""
    if not filename.startswith((f"{ROOT}/server/", f"{ROOT}/schema/")):
        return None
    path = filename.removeprefix(f"{ROOT}/")
    return None if path.startswith(LEFT_OUT) else path


def _function(code: CodeType) -> Function:
    documentation = code.co_consts[0] if code.co_consts else None
    text = " ".join(documentation.split()) if isinstance(documentation, str) and code.co_flags & 0x2 else ""
    sentence = re.split(r"(?<=[.:!?])\s", text, maxsplit=1)[0].rstrip(".:")
    return Function(_path(code.co_filename) or "", code.co_firstlineno, code.co_qualname, sentence)


@contextmanager
def recorder() -> Iterator[Recorder]:
    """Profiles this thread and marks the two entry points, for as long as the block runs."""
    recorder = Recorder()
    call, run = SecurityMiddleware.__call__, Runner.run

    async def marked_call(self: SecurityMiddleware, scope: Any, receive: Any, send: Any) -> None:
        with _step(REQUEST if scope["type"] == "http" else None):
            await call(self, scope, receive, send)

    async def marked_run(self: Runner, job: Any) -> Any:
        with _step(JOB if job.kind == KIND else OTHER):
            return await run(self, job)

    SecurityMiddleware.__call__, Runner.run = marked_call, marked_run
    before = sys.getprofile()
    sys.setprofile(recorder.see)
    try:
        yield recorder
    finally:
        sys.setprofile(before)
        SecurityMiddleware.__call__, Runner.run = call, run


@contextmanager
def _step(step: str | None) -> Iterator[None]:
    token = STEP.set(step)
    try:
        yield
    finally:
        STEP.reset(token)


async def record(database_url: str) -> str:
    """The text of docs/walk.md, from fresh recordings on an empty migrated database."""
    recordings: list[dict[str, list[Function]]] = []
    with recorder() as calls:
        async with (
            _serving(database_url) as (server, token),
            server.watching(SUBSCRIPTION, token=token) as socket,
        ):
            await until(lambda: server.runtime.tail.subscribers > 0)
            calls.begin()
            await asyncio.sleep(IDLE_SECONDS)
            timed = calls.end()[EVENTS]
            for number in range(RECORDINGS + 1):  # the first fills the caches, and is not kept
                calls.begin()
                answer = await server.ask(CREATE % (number, number), token=token)
                assert answer.data["createInstance"]["errors"] == []
                while (await socket.next("instanceEvents"))["status"] != "READY":
                    pass
                recordings.append(calls.end())
    return render(_common(recordings[1:], timed))


@asynccontextmanager
async def _serving(database_url: str) -> AsyncIterator[tuple[Server, str]]:
    database, token = Database(database_url, pool_size=1), new_secret()
    async with database.write() as session:
        await create_token(session, project=DEFAULT_PROJECT, name="walk", role=Role.OPERATOR, secret=token)
    await database.close()
    async with a_simulator() as simulator, serving(database_url, simulator) as server:
        server.runtime.work()
        yield server, token


def _common(recordings: list[dict[str, list[Function]]], timed: list[Function]) -> dict[str, list[Function]]:
    """The functions of each step that all recordings have, in the order of the first."""
    first, *others = recordings
    left_out = {each for each in timed if each.name not in LOOPS}
    common = {
        step: [each for each in functions if each.is_listed and all(each in other[step] for other in others)]
        for step, functions in first.items()
    }
    return common | {EVENTS: [each for each in common[EVENTS] if each not in left_out]}


def render(walk: dict[str, list[Function]]) -> str:
    lines = [
        "# The walk of one request",
        "",
        "Made by `make walk` from recorded `createInstance` requests; a test compares it with a fresh recording.",
        "Each step lists its functions by part of the program, with the first sentence of their docstrings. Files",
        "are in the order of their first calls, or by name for the subscription message. Private helpers without a",
        "docstring, timers, logs, metrics and the simulator are left out.",
    ]
    for step, (title, words, parts) in SECTIONS.items():
        lines += ["", f"## {title}", "", words]
        functions = sorted(walk[step], key=lambda each: (each.file, each.line))
        files = dict.fromkeys(each.file for each in (functions if step == EVENTS else walk[step]))
        rest = [each for file in files for each in functions if each.file == file]
        for part, prefixes in parts:
            chosen = [each for each in rest if each.file.startswith(prefixes)]
            rest = [each for each in rest if each not in chosen]
            if chosen:
                lines += ["", f"### {part}"]
            for file in dict.fromkeys(each.file for each in chosen):
                lines += ["", f"`{file}`", ""]
                lines += [_line(each) for each in chosen if each.file == file]
    return "\n".join(lines) + "\n"


def _line(function: Function) -> str:
    name = function.name.replace(".<locals>", "")
    return f"- `{name}`: {function.sentence}" if function.sentence else f"- `{name}`"


async def main(file: Path = FILE) -> None:
    async with postgres.embedded() as url:
        file.write_text(await record(await DatabaseMaker(url).migrated()))


if __name__ == "__main__":
    logs.configure(level="error", format="console")
    asyncio.run(main(*map(Path, sys.argv[1:])))
