"""The graphql-http audits and a client generator accept our HTTP endpoint and schema."""

import asyncio
import fcntl
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.api import Api

AUDIT = Path(__file__).parents[3] / "audit"
FILES = ("package.json", "package-lock.json", ".npmrc", "run.mjs", "introspect.mjs")


async def node(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


async def installed() -> Path:
    """Once for each state of the files, however many tests and processes ask."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    state = hashlib.sha256(b"".join((AUDIT / name).read_bytes() for name in FILES)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pilotlight-tests"
    folder = cache / f"audit-{state}"
    folder.mkdir(parents=True, exist_ok=True)
    with (cache / f"audit-{state}.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            for name in FILES:
                shutil.copy(AUDIT / name, folder / name)
            await node("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--silent", cwd=folder)
            (folder / "done").touch()
    return folder


async def run(api: Api, script: str) -> list[dict[str, Any]]:
    folder = await installed()
    out = await node("node", script, f"http://{api.server.address}/graphql", api.token, cwd=folder)
    return [orjson.loads(line) for line in out.splitlines()]


async def test_every_audit_of_graphql_over_http_is_passed(api: Api):
    audits = await run(api, "run.mjs")

    assert len(audits) > 60
    assert [audit for audit in audits if audit["status"] != "ok"] == []


async def test_the_reference_implementation_reads_our_schema_by_introspection(api: Api):
    """With everything that GraphiQL asks for."""
    (result,) = await run(api, "introspect.mjs")
    assert (result["status"], result["errors"]) == (200, [])
    assert "createInstance" in result["mutations"]
