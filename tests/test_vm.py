"""The files of the guide for one machine: units that systemd accepts, backups, proxies that pass on what is live."""

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from server.config import Settings
from server.db.embedded.data_directory import binary
from tests.support.api import Api
from tests.support.cursors import head_cursor
from tests.support.databases import DatabaseMaker
from tests.support.other_environment import run_program
from tests.support.processes import PILOTLIGHT, ROOT
from tests.support.waiting import until

VM = ROOT / "deploy/vm"
UNITS = sorted(file.name for file in VM.glob("*.service")) + sorted(file.name for file in VM.glob("*.timer"))
GUIDE = (ROOT / "docs/deploy-vm.md").read_text()
PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
PROXIES = {name: shutil.which(name, path=PATH) for name in ("nginx", "caddy")}
BACKUP = re.compile(r"ExecStart=/bin/sh -ec '(.*)'", re.DOTALL)


def test_every_file_of_the_folder_is_in_the_guide():
    assert [file.name for file in VM.iterdir() if file.name not in GUIDE and "pilotlight-*" not in GUIDE] == []
    assert all(name.removesuffix(".service").removesuffix("@") in GUIDE for name in UNITS if name.endswith(".service"))


def test_systemd_accepts_the_units(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    for name in UNITS:
        text = (VM / name).read_text()
        # The program and the users are those of the machine that the units are for.
        (tmp_path / name).write_text(re.sub(r"/opt/pilotlight/bin/pilotlight", "/bin/true", text))
    units = [str(tmp_path / name.replace("@", "@8001")) for name in UNITS]
    for name in UNITS:
        if "@" in name:
            (tmp_path / name.replace("@", "@8001")).symlink_to(tmp_path / name)
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "pilotlight" in line and "postgresql.service" not in line]
    assert (done.returncode, ours) == (0, [])


def test_the_settings_of_the_guide_are_valid_and_all_are_ours(monkeypatch: pytest.MonkeyPatch):
    lines = (VM / "pilotlight.env").read_text().splitlines()
    given = dict(line.removeprefix("# ").split("=", 1) for line in lines if re.match(r"(# )?[A-Z_]+=", line))
    assert {name.lower() for name in given} <= set(Settings.model_fields)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_env()
    assert (settings.public_url, settings.is_loopback) == ("https://gpu.example.com", True)
    assert [role.role for role in settings.group_roles] == ["ADMIN", "READER"]


def test_processes_have_longer_to_stop_than_they_take():
    for name in ("pilotlight-api@.service", "pilotlight-worker@.service"):
        wait = re.search(r"TimeoutStopSec=(\d+)", (VM / name).read_text())
        assert wait is not None
        assert int(wait[1]) > Settings().shutdown_timeout.total_seconds()


def test_a_restart_of_the_migration_restarts_no_process():
    """systemd passes a restart on to units that require the restarted one; an upgrade migrates while processes run."""
    for name in ("pilotlight-api@.service", "pilotlight-worker@.service"):
        unit = (VM / name).read_text()
        assert re.findall(r"(?m)^(\w+)=.*pilotlight-migrate", unit) == ["After", "Wants"]


async def test_the_backup_has_all_rows_and_the_audit_log_of_the_day_before(
    api: Api, new_database: DatabaseMaker, tmp_path: Path
):
    made = await api.create()
    await api.create(name="other")
    earlier = (
        "UPDATE audit_event SET created_at = date_trunc('day', now(), 'UTC') - interval '1 hour' WHERE target = $1"
    )
    await api.world.database.raw.execute(earlier, made["instance"]["id"])
    for name, days in (("kept.dump", 29), ("old.dump", 32)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - days * 86400,) * 2)
    found = BACKUP.search((VM / "pilotlight-backup.service").read_text())
    assert found is not None
    script = found[1].replace("\\\n", "").replace("$$", "$").replace("%%", "%")  # as systemd reads it
    assert script.count("/opt/pilotlight/bin/pilotlight ") == 1
    script = script.replace("/opt/pilotlight/bin/pilotlight ", f"{shlex.join(PILOTLIGHT)} ")
    url = api.server.runtime.database_url
    env = {"PATH": f"{binary('pg_dump').parent}:/usr/bin:/bin", "DATABASE_URL": url, "BACKUPS": str(tmp_path)}
    code, _, said = await run_program("sh", "-ec", script, env=env)
    assert code == 0, said

    assert not (tmp_path / "old.dump").exists()
    [dump] = tmp_path.glob("2*.dump")
    [log] = tmp_path.glob("*.audit.jsonl")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["kept.dump", dump.name, log.name])
    [line] = [json.loads(line) for line in log.read_text().splitlines()]
    assert (line["mutation"], line["outcome"], line["target"]) == ("createInstance", "ACCEPTED", made["instance"]["id"])
    restored = await new_database()
    code, _, said = await run_program(str(binary("pg_restore")), "--no-owner", "--dbname", restored, str(dump), env=env)
    assert code == 0, said
    count = """
        SELECT (SELECT count(*) FROM instance), (SELECT count(*) FROM operation), (SELECT count(*) FROM audit_event)
    """
    assert [await _row(each, count) for each in (url, restored)] == [(2, 2, 2)] * 2


async def _row(url: str, query: str) -> tuple[Any, ...]:
    connection = await asyncpg.connect(url)
    try:
        return tuple(await connection.fetchrow(query))
    finally:
        await connection.close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(params=["nginx", "caddy"])
async def front(api: Api, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The guide's configuration, in front of one process that runs and one that does not."""
    program = PROXIES[request.param]
    if program is None or shutil.which("openssl") is None:
        pytest.skip(f"there is no {request.param}, or no openssl")
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    addresses = {"127.0.0.1:8001": f"127.0.0.1:{free_port()}", "127.0.0.1:8002": api.server.address}
    port = free_port()
    configured = as_nginx if request.param == "nginx" else as_caddy
    check, run = configured(program, tmp_path, port, addresses)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    checked = subprocess.run(check, capture_output=True, text=True, env=env)
    assert checked.returncode == 0, checked.stderr
    process = await asyncio.create_subprocess_exec(*run, stderr=subprocess.DEVNULL, env=env)
    try:
        await until(lambda: _is_open(port))
        yield f"https://localhost:{port}"
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)  # it waits for streams: those of readers that are gone have to end
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def configuration(name: str, changes: dict[str, str]) -> str:
    """The guide's file with the addresses, names and certificates of a test."""
    config = (VM / name).read_text()
    for before, after in changes.items():
        assert before in config, before
        config = config.replace(before, after)
    return config


def as_nginx(program: str, folder: Path, port: int, addresses: dict[str, str]) -> tuple[list[str], list[str]]:
    """The commands that check the configuration and run it."""
    changes = {
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "/etc/ssl/pilotlight/": f"{folder}/",
        "gpu.example.com": "localhost",
    }
    (folder / "site.conf").write_text(configuration("nginx.conf", {**changes, **addresses}))
    temporary = " ".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary} include {folder}/site.conf; }}\n"
    )
    options = ["-c", str(main), "-p", str(folder)]
    return [program, "-t", "-q", *options], [program, *options]


def as_caddy(program: str, folder: Path, port: int, addresses: dict[str, str]) -> tuple[list[str], list[str]]:
    """The commands that check the configuration and run it."""
    site = f"https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls {folder}/fullchain.pem {folder}/privkey.pem"
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    main = folder / "Caddyfile"
    main.write_text(options + configuration("Caddyfile", {"gpu.example.com {": site, **addresses}))
    how = ["--adapter", "caddyfile", "--config"]
    return [program, "validate", *how, str(VM / "Caddyfile")], [program, "run", *how, str(main)]


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_requests_websockets_and_streams_pass_the_proxy(api: Api, front: str):
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    headers = {"authorization": f"Bearer {api.token}"}
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as http:
        for _ in range(4):  # whichever process it is sent to first
            async with http.post(f"{front}/graphql", json={"query": "{ viewer { role } }"}) as response:
                assert (await response.json())["data"]["viewer"]["role"] == "OPERATOR"
        async with http.get(f"{front}/metrics") as response:
            assert response.status == 404
        assert response.headers["strict-transport-security"] == "max-age=31536000"

        start = await head_cursor(api.world.database)
        document = "subscription ($after: String) { instanceEvents(after: $after) { type } }"
        watch = {"query": document, "variables": {"after": start}}
        accept = {"accept": "text/event-stream"}
        async with (
            http.ws_connect(f"{front}/graphql", protocols=["graphql-transport-ws"], origin=front) as socket_,
            http.post(f"{front}/graphql", json=watch, headers=accept) as stream,
        ):
            await socket_.send_json({"type": "connection_init"})
            assert (await socket_.receive_json())["type"] == "connection_ack"
            await socket_.send_json({"id": "1", "type": "subscribe", "payload": watch})
            assert stream.status == 200
            await api.create()
            message = await socket_.receive_json(timeout=20)
            assert message["payload"]["data"]["instanceEvents"]["type"] == "instance.created"
            async with asyncio.timeout(20):
                while b"instance.created" not in await stream.content.readline():
                    pass
