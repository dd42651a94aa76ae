"""Everything that runs: PostgreSQL, Redis, the simulator, two API and two worker processes, and fault proxies."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import aiohttp
import asyncpg

from server.auth.tokens import create_token, new_secret
from server.db.database import Database
from server.db.embedded.data_directory import DataDirectory
from server.db.embedded.server import EmbeddedPostgres, find_running
from server.db.migrate import upgrade
from server.db.tables import Token
from server.enums import Role
from tests.chaos.managed_process import ManagedProcess
from tests.chaos.schedule import APIS, PROCESSES, WORKERS
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import ROOT, free_port
from tests.support.waiting import until

DISK_MEGABYTES = 900
LEASE = 4.0  # seconds
# Short times, so that every timeout and every takeover happens often. CREATE_GRACE is longer than any list lags.
SETTINGS = {
    "NOVITA_RATE_LIMIT": "0",
    "REQUEST_TIMEOUT": "3s",
    "REQUEST_DEADLINE": "5s",
    "CREATE_GRACE": "9s",
    "BREAKER_THRESHOLD": "10",
    "BREAKER_RECOVERY": "2s",
    "DATABASE_TIMEOUT": "6s",
    "JOB_LEASE": f"{LEASE:.0f}s",
    "SHUTDOWN_TIMEOUT": "6s",
    "RECONCILE_INTERVAL": "10s",
    "INSTANCE_POLL_INTERVAL": "2s",
    "INSTANCE_MAX_WAIT": "90s",
    "HEALTH_CHECK_DELAY": "200ms",
    "HEALTH_CHECK_MAX_WAIT": "60s",
    "SOCKET_PING_INTERVAL": "5s",
    "SOCKET_INIT_TIMEOUT": "3s",
    "SOCKETS_PER_TOKEN": "100",
    "WEBHOOK_TIMEOUT": "2s",
    "ALLOW_PRIVATE_WEBHOOKS": "loopback",
    "PRODUCT_CACHE_TTL": "5s",
    "FLEET_CACHE_TTL": "1s",
    "LIFETIME_RETRY": "5s",
    "LOG_FORMAT": "json",
    "LOG_LEVEL": "info",
}
# Which claim held a job, recorded by triggers: compared afterwards with what handlers wrote.
AUDIT = """
    CREATE TABLE chaos_write (job_id bigint NOT NULL, claim bigint NOT NULL, xid bigint NOT NULL);
    CREATE TABLE chaos_claim (job_id bigint NOT NULL, before bigint, after bigint, xid bigint NOT NULL);
    CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO chaos_claim VALUES (
            OLD.id, OLD.claim, CASE WHEN TG_OP = 'UPDATE' THEN NEW.claim END, pg_current_xact_id()::text::bigint);
        RETURN NULL;
    END $$;
    CREATE TRIGGER chaos_taken AFTER UPDATE ON job FOR EACH ROW WHEN (OLD.claim IS DISTINCT FROM NEW.claim)
        EXECUTE FUNCTION chaos_note();
    CREATE TRIGGER chaos_ended AFTER DELETE ON job FOR EACH ROW EXECUTE FUNCTION chaos_note();
"""


@dataclass
class Secrets:
    """Planted where they belong; found anywhere else, they were leaked."""

    novita_key: str = field(default_factory=lambda: "sk_" + secrets.token_hex(16))
    signing_key: str = field(default_factory=lambda: "signing-" + secrets.token_hex(16))
    token: str = field(default_factory=new_secret)
    stranger: str = field(default_factory=new_secret)
    server_admin: str = field(default_factory=new_secret)
    registry_password: str = field(default_factory=lambda: "registry-" + secrets.token_hex(12))
    webhook: str = ""


@dataclass
class Cluster:
    home: Path
    url: str
    disk: Path | None
    secrets: Secrets
    simulator_url: str
    processes: dict[str, ManagedProcess] = field(default_factory=dict[str, ManagedProcess])
    # By process, then by what the network leads to.
    networks: dict[str, dict[str, FaultProxy]] = field(default_factory=dict[str, dict[str, FaultProxy]])
    ports: dict[str, int] = field(default_factory=dict[str, int])
    redis_port: int = 0
    redis: "asyncio.subprocess.Process | None" = None
    simulator: "asyncio.subprocess.Process | None" = None
    project_id: UUID | None = None
    provider_max_wait: float = 3600.0  # seconds
    dialect: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def has_redis(self) -> bool:
        return shutil.which("redis-server") is not None

    @property
    def cannot(self) -> frozenset[str]:
        """Kinds of faults that this machine has no means for."""
        disk = () if self.disk is not None else ("database disk full",)
        return frozenset(disk if self.has_redis else (*disk, "cache network", "cache kill -9"))

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def addresses(self) -> list[str]:
        return [f"http://127.0.0.1:{self.ports[name]}/graphql" for name in APIS]

    def signal_postgres(self, number: signal.Signals) -> None:
        """SIGINT is a fast shutdown, SIGQUIT an immediate one, SIGKILL none at all. Its owner starts it again."""
        running = find_running(self.home / "postgres")
        if running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, number)

    @contextlib.asynccontextmanager
    async def connection(self) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
        """Straight to the database, past all bad networks."""
        connection = await asyncpg.connect(self.url, timeout=10, command_timeout=120)
        try:
            yield connection
        finally:
            connection.terminate()

    async def control(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The simulator's control API."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
            http.request(
                "GET" if body is None else "POST", f"{self.simulator_url}/control/{path}", json=body
            ) as answer,
        ):
            answer.raise_for_status()
            return await answer.json()

    async def start_redis(self) -> None:
        self.redis = await asyncio.create_subprocess_exec(
            "redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--save", "",
            cwd=self.home, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    def fill_disk(self) -> None:
        """To the last byte."""
        assert self.disk is not None
        file = os.open(self.disk / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (2**20, 2**10):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file, b"\0" * size)
        finally:
            os.close(file)

    def free_disk(self) -> None:
        if self.disk is not None:
            (self.disk / "ballast").unlink(missing_ok=True)

    def mend(self) -> None:
        for ways in self.networks.values():
            for network in ways.values():
                network.mend()
        for process in self.processes.values():
            process.clock.write_text("0")
        self.free_disk()


@asynccontextmanager
async def running_cluster(
    seed: int, *, can_fill_disk: bool = True, provider_max_wait: float = 3600.0, dialect: dict[str, Any] | None = None
) -> AsyncIterator[Cluster]:
    """`provider_max_wait` is in seconds; `dialect` has the simulator's fields that differ from its defaults."""
    async with AsyncExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="pilotlight-chaos-"))
        home.chmod(0o755)
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        disk = _own_disk(home / "postgres", stack) if can_fill_disk else None
        postgres = await stack.enter_async_context(EmbeddedPostgres(home / "postgres"))
        await upgrade(postgres.url)
        planted = Secrets()
        simulator_port = free_port()
        stage = Cluster(home, postgres.url, disk, planted, f"http://127.0.0.1:{simulator_port}", redis_port=free_port())
        stage.provider_max_wait, stage.dialect = provider_max_wait, dialect or {}
        await _prepare(stage)
        await _start_others(stage, simulator_port, stack)
        await _start_processes(stage, seed, stack)
        yield stage


def _own_disk(folder: Path, stack: AsyncExitStack) -> Path | None:
    """A small file system for the data, if we may make one: only there can it be filled without harm to others."""
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m,mode=0700", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        return None
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
    return folder


async def _prepare(stage: Cluster) -> None:
    database = Database(stage.url, pool_size=1)
    async with database.write() as session:
        owner = await create_token(session, project="chaos", name="chaos", role=Role.ADMIN, secret=stage.secrets.token)
        stage.project_id = (await session.get_one(Token, owner)).project_id
        await create_token(
            session, project="strangers", name="stranger", role=Role.ADMIN, secret=stage.secrets.stranger
        )
        await create_token(
            session, project="default", name="server", role=Role.ADMIN, secret=stage.secrets.server_admin
        )
    await database.close()
    async with stage.connection() as connection:
        await connection.execute(AUDIT)
        began = await connection.fetchval("SELECT pg_postmaster_start_time()")
    # Which of two commits came first is asked at the end; our own user may not change such a setting.
    with (DataDirectory(stage.home / "postgres").path / "postgresql.conf").open("a") as settings:
        settings.write("track_commit_timestamp = on\n")
    stage.signal_postgres(signal.SIGINT)

    async def is_back() -> bool:
        with contextlib.suppress(OSError, asyncpg.PostgresError, TimeoutError, asyncpg.InterfaceError):
            async with stage.connection() as connection:
                return bool(await connection.fetchval("SELECT pg_postmaster_start_time() > $1", began))
        return False

    await until(is_back, within=60)


async def _start_others(stage: Cluster, simulator_port: int, stack: AsyncExitStack) -> None:
    if stage.has_redis:
        await stage.start_redis()
    with (stage.home / "simulator.log").open("wb") as log:
        stage.simulator = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "server.simulator", "--port", str(simulator_port), "--speed", "20",
            "--stock-factor", "1000", "--state-file", str(stage.home / "state"), "--api-key", stage.secrets.novita_key,
            cwd=ROOT, env=_environment(), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    stack.push_async_callback(_end_others, stage)
    await _answers(f"{stage.simulator_url}/control/state")
    if stage.dialect:
        await stage.control("dialect", stage.dialect)


async def _start_processes(stage: Cluster, seed: int, stack: AsyncExitStack) -> None:
    simulator_port = urlsplit(stage.simulator_url).port or 0
    targets = {"database": urlsplit(stage.url).port or 0, "cache": stage.redis_port, "provider": simulator_port}
    for name in PROCESSES:
        ways = {
            to: await stack.enter_async_context(FaultProxy(port, seed=f"{seed}:{name}:{to}"))
            for to, port in targets.items()
        }
        environment = {
            **_environment(),
            **SETTINGS,
            "PROVIDER_MAX_WAIT": f"{stage.provider_max_wait:.0f}s",
            "DATABASE_URL": _with_port(stage.url, ways["database"].port),
            **({"REDIS_URL": f"redis://127.0.0.1:{ways['cache'].port}/0"} if stage.has_redis else {}),
            "NOVITA_API_BASE_URL": f"http://127.0.0.1:{ways['provider'].port}",
            "NOVITA_API_KEY": stage.secrets.novita_key,
            "WEBHOOK_SIGNING_KEY": stage.secrets.signing_key,
            "CHAOS_RUNS": str(stage.runs),
        }
        arguments: tuple[str, ...] = ("-m", "tests.chaos.launch", "worker")
        if name in APIS:
            stage.ports[name] = free_port()
            arguments = ("-m", "tests.chaos.launch", "serve", "--port", str(stage.ports[name]))
        stage.networks[name] = ways
        process = stage.processes[name] = ManagedProcess(
            name, arguments, environment, stage.home / name.replace(" ", "-")
        )
        await process.start()
        stack.push_async_callback(process.end)
    for name in APIS:
        await _answers(f"http://127.0.0.1:{stage.ports[name]}/readyz")
    await until(lambda: _all_ready([stage.processes[name] for name in WORKERS]), within=120)


async def _all_ready(processes: list[ManagedProcess]) -> bool:
    return all(process.is_ready for process in processes)


async def _end_others(stage: Cluster) -> None:
    for process in (stage.simulator, stage.redis):
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _answers(url: str, *, within: float = 120.0) -> None:
    deadline = time.monotonic() + within
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            assert time.monotonic() < deadline, f"{url} does not answer"
            await asyncio.sleep(0.1)


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"))
