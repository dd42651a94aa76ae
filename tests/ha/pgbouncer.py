"""A real PgBouncer in transaction mode before a test's database."""

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator
from configparser import ConfigParser
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.processes import ROOT, free_port, is_free
from tests.support.waiting import until

DEPLOYED = ROOT / "deploy" / "ha" / "pgbouncer.ini"
USER = "nobody"  # PgBouncer does not run as root


@asynccontextmanager
async def pgbouncer(url: str, *, pool_size: int) -> AsyncIterator[str]:
    """The URL that leads through it; all of its clients share `pool_size` connections to the server."""
    server, listens = urlsplit(url), free_port()
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-pgbouncer-"))
    folder.chmod(0o755)
    # The one that we deploy, but for where it is.
    config = ConfigParser()
    config.read(DEPLOYED)
    (folder / "userlist.txt").write_text(f'"{server.username}" "{server.password}"\n')
    config["databases"] = {server.path[1:]: f"host={server.hostname} port={server.port}"}
    config["pgbouncer"].update(
        {
            "listen_addr": "127.0.0.1",
            "listen_port": str(listens),
            "unix_socket_dir": "",
            "auth_file": str(folder / "userlist.txt"),
            "default_pool_size": str(pool_size),
        }
    )
    with (folder / "pgbouncer.ini").open("w") as file:
        config.write(file)
    how = {"user": pwd.getpwnam(USER).pw_uid} if os.geteuid() == 0 else {}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(shutil.which("pgbouncer")), str(folder / "pgbouncer.ini"), stdout=log, stderr=log, **how
        )
    try:
        await until(lambda: not is_free(listens) or process.returncode is not None)
        assert process.returncode is None, (folder / "log").read_text()
        yield f"postgresql://{server.username}:{server.password}@127.0.0.1:{listens}{server.path}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
