"""An environment of its own with packages that the tests' own does not have, fetched at test time."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

UV = Path(sys.executable).parent / "uv"
PATIENCE = 120.0


async def run_program(*command: str | Path, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code and both outputs; killed if it takes longer than two minutes."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(PATIENCE):
            printed, said = await process.communicate()
    except TimeoutError:
        process.kill()
        printed, said = await process.communicate()
    return process.returncode or 0, printed.decode(), said.decode()


async def python_with(home: Path, *packages: str) -> Path:
    """The interpreter of a new environment in this folder. Skips the test if the registry can't be reached."""
    env = {**os.environ, "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}
    env.pop("VIRTUAL_ENV", None)
    code, _, said = await run_program(UV, "venv", "--quiet", "--python", sys.executable, home, env=env)
    assert code == 0, said
    install = (UV, "pip", "install", "--quiet", "--python", home / "bin/python", *packages)
    code, _, said = await run_program(*install, env=env)
    if "Failed to fetch" in said or "network was disabled" in said:
        pytest.skip(f"the package registry can't be reached for {', '.join(packages)}: {said[-300:]}")
    assert code == 0, said
    return home / "bin/python"
