"""A real cluster on loopback: etcd, PostgreSQL under Patroni with synchronous replication, and haproxy."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import psutil
from ruamel.yaml import YAML

from tests.support.processes import free_port
from tests.support.waiting import until

# Debian keeps the servers' programs out of the way of people.
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
PROGRAMS = ("etcd", "patroni", "haproxy")
USER = "postgres"  # PostgreSQL does not run as root
PASSWORD = "a-password-for-loopback"
# Short, so that a death is noticed within seconds. Patroni wants loop_wait + 2 * retry_timeout <= ttl.
TTL, LOOP_WAIT, RETRY_TIMEOUT = 7, 1, 3


def why_not() -> str | None:
    """What is missing to run a cluster here; None if nothing is."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not BINARIES:
        missing.append("PostgreSQL under /usr/lib/postgresql")
    if os.geteuid() == 0 and USER not in {each.pw_name for each in pwd.getpwall()}:
        missing.append(f"a user {USER}")
    return f"not installed here: {', '.join(missing)}" if missing else None


@dataclass
class Node:
    """One machine: Patroni and its PostgreSQL."""

    name: str
    port: int
    rest: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def postmaster(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        return None

    def family(self) -> list[psutil.Process]:
        """Everything that would be gone if the machine were."""
        found: dict[int, psutil.Process] = {}
        for pid in (self.process.pid if self.process else None, self.postmaster()):
            with suppress(psutil.NoSuchProcess):
                if pid is not None:
                    top = psutil.Process(pid)
                    for each in [top, *top.children(recursive=True)]:
                        found[each.pid] = each
        return [each for each in found.values() if _belongs(each, self.folder)]

    def kill(self) -> None:
        """The machine dies: kill -9 for all of it."""
        family = self.family()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        if self.process is not None:
            self.process.wait()
            self.process = None
        psutil.wait_procs(family, timeout=10)

    def last_words(self) -> str:
        log = self.folder / "patroni.log"
        return f"{self.name}: {log.read_text(errors='replace')[-1500:] if log.exists() else 'never started'}"

    def kill_postgres(self) -> None:
        """PostgreSQL alone dies; Patroni lives to see it."""
        pid = self.postmaster()
        with suppress(psutil.NoSuchProcess):
            if pid is not None and _belongs(psutil.Process(pid), self.folder):
                psutil.Process(pid).kill()

    def freeze(self) -> None:
        """Patroni hangs; its PostgreSQL goes on and does not know that it may be deposed."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)


@dataclass
class Cluster:
    folder: Path
    nodes: list[Node]
    etcd_port: int
    front_port: int
    others: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def url_of(self, node: Node, name: str = "pilotlight") -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{node.port}/{name}"

    def url(self, name: str = "pilotlight") -> str:
        """A URL with all servers; the client finds the one that takes writes."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres:{PASSWORD}@{hosts}/{name}"

    def front_url(self, name: str = "pilotlight") -> str:
        """haproxy, which asks Patroni who the primary is."""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.front_port}/{name}"

    async def start(self, node: Node) -> None:
        node.process = _spawn(["patroni", str(node.folder / "patroni.yml")], node.folder, as_user=True)

    async def primary(self) -> Node | None:
        """The node that holds the lock and answers as primary, or None."""
        for node in self.nodes:
            if node.process is not None and await _status(node.rest, "primary") == 200:
                return node
        return None

    async def has_primary(self, *, other_than: Node | None = None, within: float = 60) -> Node:
        found: list[Node] = []

        async def there_is() -> bool:
            node = await self.primary()
            if node is not None and node is not other_than:
                found.append(node)
            return bool(found)

        await until(there_is, within=within)
        return found[-1]

    async def is_whole(self, *, within: float = 180) -> None:
        """Until every server runs, and one of them confirms each commit of the primary."""

        members: list[Any] = []

        async def whole() -> bool:
            primary = await self.primary()
            if primary is None:
                return False
            with suppress(aiohttp.ClientError, TimeoutError):
                members[:] = (await _get(primary.rest, "cluster"))["members"]
                replicas = [each for each in members if each["role"] != "leader" and each["state"] in GOOD]
                is_safe = any(each["role"] == "sync_standby" for each in replicas)
                return len(replicas) == len(self.nodes) - 1 and is_safe
            return False

        try:
            await until(whole, within=within)
        except AssertionError:
            words = [f"last seen: {members}", *(node.last_words() for node in self.nodes)]
            raise AssertionError("\n".join(words)) from None

    async def execute(self, statement: str, *, name: str = "postgres") -> None:
        primary = await self.has_primary()
        connection = await asyncpg.connect(self.url_of(primary, name))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def stop(self) -> None:
        for node in self.nodes:
            node.thaw()
            node.kill()
        for process in self.others:
            process.kill()
            process.wait()


GOOD = ("running", "streaming")
ANSWER_SECONDS = 10.0  # Patroni asks its server before it answers, and the machine may be busy


@asynccontextmanager
async def cluster(*, nodes: int = 3) -> AsyncIterator[Cluster]:
    """A cluster with an empty database `pilotlight`; all of it ends with the block."""
    with _Folder() as folder:
        made = _plan(folder, nodes)
        try:
            made.others.append(_etcd(made))
            await until(lambda: _answers(made.etcd_port))
            for node in made.nodes:
                await made.start(node)
            await made.is_whole()
            made.others.append(_haproxy(made))
            await made.execute("CREATE DATABASE pilotlight")
            yield made
        finally:
            made.stop()


class _Folder:
    """An empty folder of the servers' user."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="pilotlight-ha-"))
        if os.geteuid() == 0:
            shutil.chown(self._path, USER)
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _plan(folder: Path, nodes: int) -> Cluster:
    made = Cluster(folder, [], free_port(), free_port())
    for number in range(1, nodes + 1):
        node = Node(f"node{number}", free_port(), free_port(), folder / f"node{number}")
        node.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(node.folder, USER)
        YAML().dump(_settings(made, node), node.folder / "patroni.yml")
        made.nodes.append(node)
    return made


def _settings(made: Cluster, node: Node) -> dict[str, Any]:
    user = {"username": "postgres", "password": PASSWORD}
    return {
        "scope": "pilotlight",
        "name": node.name,
        "restapi": {"listen": f"127.0.0.1:{node.rest}", "connect_address": f"127.0.0.1:{node.rest}"},
        "etcd3": {"host": f"127.0.0.1:{made.etcd_port}"},
        "bootstrap": {
            "dcs": {
                "ttl": TTL,
                "loop_wait": LOOP_WAIT,
                "retry_timeout": RETRY_TIMEOUT,
                "synchronous_mode": True,
                "primary_start_timeout": 10,  # a crashed primary that takes longer to come up again is replaced
                "master_start_timeout": 10,  # its name before Patroni 3.1
                "postgresql": {
                    "use_pg_rewind": True,
                    "use_slots": True,
                    "parameters": {"max_connections": 200, "shared_buffers": "32MB", "wal_keep_size": "128MB"},
                },
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{node.port}",
            "connect_address": f"127.0.0.1:{node.port}",
            "data_dir": str(node.data),
            "bin_dir": str(BINARIES[-1].parent),
            "pgpass": str(node.folder / "pgpass"),
            "pg_hba": [  # written at each start: pg_rewind may have left an empty file
                "host all all 127.0.0.1/32 scram-sha-256",
                "host replication postgres 127.0.0.1/32 scram-sha-256",
            ],
            "authentication": {"superuser": user, "replication": user, "rewind": user},
            "parameters": {"unix_socket_directories": ""},
        },
    }


def _etcd(made: Cluster) -> subprocess.Popen[bytes]:
    client, peer = f"http://127.0.0.1:{made.etcd_port}", f"http://127.0.0.1:{free_port()}"
    return _spawn(
        [
            *("etcd", "--name", "one", "--data-dir", str(made.folder / "etcd")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
            "--unsafe-no-fsync",
        ],
        made.folder,
        as_user=True,
    )


def _haproxy(made: Cluster) -> subprocess.Popen[bytes]:
    servers = "\n".join(f"  server {node.name} 127.0.0.1:{node.port} check port {node.rest}" for node in made.nodes)
    (made.folder / "haproxy.cfg").write_text(HAPROXY.format(port=made.front_port, servers=servers))
    return _spawn(["haproxy", "-db", "-f", str(made.folder / "haproxy.cfg")], made.folder, as_user=True)


# As in deploy/ha: a server that is no longer the primary loses its sessions at once.
HAPROXY = """
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout check 5s
frontend primary
  bind 127.0.0.1:{port}
  default_backend primary
backend primary
  option httpchk GET /primary
  http-check expect status 200
  default-server inter 1s fastinter 300ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


def _spawn(command: Sequence[str], folder: Path, *, as_user: bool) -> subprocess.Popen[bytes]:
    how: dict[str, Any] = {}
    if as_user and os.geteuid() == 0:
        account = pwd.getpwnam(USER)
        how = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    program = str(shutil.which(command[0]))
    with (folder / f"{Path(program).name}.log").open("ab") as out:
        return subprocess.Popen(
            [program, *command[1:]],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            **how,
        )


def _belongs(process: psutil.Process, folder: Path) -> bool:
    """A pid that was read from a file may belong to another process by now."""
    with suppress(psutil.Error):
        return str(folder) in " ".join(process.cmdline()) or process.cwd().startswith(str(folder))
    return False


async def _status(port: int, path: str) -> int | None:
    with suppress(aiohttp.ClientError, TimeoutError):
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as session,
            session.get(f"http://127.0.0.1:{port}/{path}") as response,
        ):
            return response.status
    return None


async def _get(port: int, path: str) -> Any:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as session,
        session.get(f"http://127.0.0.1:{port}/{path}") as response,
    ):
        return json.loads(await response.read())


async def _answers(port: int) -> bool:
    return await _status(port, "health") == 200
