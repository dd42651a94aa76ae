"""A real PgBouncer in transaction mode before a test's database."""

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.processes import eventually, free_port, is_free

CONFIG = """
[databases]
{name} = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
"""
USER = "nobody"  # PgBouncer does not run as root


@asynccontextmanager
async def pgbouncer(url: str, *, pool_size: int) -> AsyncIterator[str]:
    """The URL that leads through it; all of its clients share `pool_size` connections to the server."""
    server, listens = urlsplit(url), free_port()
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-pgbouncer-"))
    folder.chmod(0o755)
    text = CONFIG.format(
        name=server.path[1:],
        host=server.hostname,
        port=server.port,
        user=server.username,
        password=server.password,
        listens=listens,
        pool_size=pool_size,
    )
    (folder / "pgbouncer.ini").write_text(text)
    how = {"user": pwd.getpwnam(USER).pw_uid} if os.geteuid() == 0 else {}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(shutil.which("pgbouncer")), str(folder / "pgbouncer.ini"), stdout=log, stderr=log, **how
        )
    try:
        await eventually(lambda: not is_free(listens) or process.returncode is not None)
        assert process.returncode is None, (folder / "log").read_text()
        yield f"postgresql://{server.username}:{server.password}@127.0.0.1:{listens}{server.path}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
