"""The parts of the page that only think are tested by Node's own test runner."""

import asyncio
from pathlib import Path

from server.building import find_npm


async def test_what_the_page_thinks_is_right(built: Path):
    npm = await find_npm()
    process = await asyncio.create_subprocess_exec(
        *npm.command,
        "test",
        "--silent",
        cwd=built.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()

    assert process.returncode == 0, said.decode()[-4000:]
    assert b"# fail 0" in said
    assert b"# tests 0" not in said
