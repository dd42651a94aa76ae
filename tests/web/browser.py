"""Real browsers for tests: Debian's Chromium, driven by playwright-core in one Node process per test process."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from server.cli.build_pages import find_npm

WEB = Path(__file__).parents[2] / "web"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ANSWER_SECONDS = 120.0


class Servant:
    """The Node process. One command at a time: a test reads like what a person does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._commands = 0

    async def do(self, command: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands += 1
        number = self._commands
        self._process.stdin.write(json.dumps({"number": number, "command": command, **given}).encode() + b"\n")
        answer: dict[str, Any] = {}
        async with asyncio.timeout(ANSWER_SECONDS):
            while answer.get("number") != number:  # others belong to a test that did not wait for them
                line = await self._process.stdout.readline()
                assert line, "the browser's process has ended"
                answer = json.loads(line)
        assert "error" not in answer, answer.get("error")
        return answer["value"]

    async def open(self, name: str, url: str, **options: Any) -> "Browser":
        await self.do("open", name=name, url=url, **options)
        return Browser(self, name)


@dataclass(frozen=True, slots=True)
class Browser:
    """One window with a profile of its own."""

    servant: Servant
    name: str

    async def wait(self, selector: str, *, state: str = "visible") -> None:
        await self.servant.do("wait", name=self.name, selector=selector, state=state)

    async def click(self, selector: str) -> None:
        await self.servant.do("click", name=self.name, selector=selector)

    async def fill(self, selector: str, value: str) -> None:
        await self.servant.do("fill", name=self.name, selector=selector, value=value)

    async def choose(self, selector: str, value: str) -> None:
        await self.servant.do("choose", name=self.name, selector=selector, value=value)

    async def press(self, keys: str) -> None:
        await self.servant.do("press", name=self.name, keys=keys)

    async def goto(self, url: str) -> None:
        await self.servant.do("goto", name=self.name, url=url)

    async def live(self) -> None:
        await self.servant.do("live", name=self.name)

    async def text(self, selector: str) -> str:
        return str(await self.servant.do("text", name=self.name, selector=selector))

    async def texts(self, selector: str) -> list[str]:
        return list(await self.servant.do("texts", name=self.name, selector=selector))

    async def evaluate(self, script: str) -> Any:
        return await self.servant.do("evaluate", name=self.name, script=script)

    async def back(self) -> None:
        await self.servant.do("back", name=self.name)

    async def reload(self) -> None:
        await self.servant.do("reload", name=self.name)

    async def hash(self) -> str:
        return str(await self.evaluate("location.hash"))

    async def serious(self) -> list[str]:
        """The rules of axe that the page breaks badly."""
        await self.evaluate((WEB / "node_modules/axe-core/axe.min.js").read_text())
        found = await self.evaluate("axe.run().then((all) => JSON.stringify(all.violations))")
        return [each["id"] for each in json.loads(found) if each["impact"] in ("serious", "critical")]

    async def subscriptions(self) -> dict[str, Any]:
        """The names of the open subscriptions, and how many results had errors."""
        return dict(await self.servant.do("subscriptions", name=self.name))

    async def report(self, url: str) -> dict[str, list[str]]:
        """What went to the console, and which other hosts were asked for anything."""
        return dict(await self.servant.do("report", name=self.name, url=url))


@asynccontextmanager
async def a_servant() -> AsyncIterator[Servant]:
    npm = await find_npm()
    process = await asyncio.create_subprocess_exec(
        npm.node,
        "e2e/driver.mjs",
        cwd=WEB,
        env={**os.environ, "CHROMIUM": CHROMIUM or ""},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )
    try:
        yield Servant(process)
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.returncode is None else []
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                await process.wait()
        for each in [*family, *([psutil.Process(process.pid)] if process.returncode is None else [])]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        await process.wait()


async def run_node(script: str, *args: str) -> str:
    """A script of web/ to its end; what it printed."""
    npm = await find_npm()
    process = await asyncio.create_subprocess_exec(
        npm.node,
        script,
        *args,
        cwd=WEB,
        env={**os.environ, "CHROMIUM": CHROMIUM or ""},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()[-4000:]
    return said.decode()
