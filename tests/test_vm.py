"""The files of the guide for one machine: units that systemd accepts, and an nginx that passes on everything live."""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from server.config import Settings
from tests.support.api import Api
from tests.support.cursors import head_cursor
from tests.support.processes import ROOT
from tests.support.waiting import until

VM = ROOT / "deploy/vm"
UNITS = sorted(file.name for file in VM.glob("*.service")) + sorted(file.name for file in VM.glob("*.timer"))
GUIDE = (ROOT / "docs/deploy-vm.md").read_text()
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or shutil.which("nginx")


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


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
async def front(api: Api, tmp_path: Path) -> AsyncIterator[str]:
    """nginx with the guide's configuration, in front of one process that runs and one that does not."""
    if NGINX is None or shutil.which("openssl") is None:
        pytest.skip("there is no nginx, or no openssl")
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    plain, secure, closed = free_port(), free_port(), free_port()
    config = (VM / "nginx.conf").read_text()
    for before, after in {
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ": f"listen 127.0.0.1:{secure} ",
        "127.0.0.1:8001": f"127.0.0.1:{closed}",
        "127.0.0.1:8002": api.server.address,
        "/etc/ssl/pilotlight/": f"{tmp_path}/",
        "gpu.example.com": "localhost",
    }.items():
        assert before in config, before
        config = config.replace(before, after)
    (tmp_path / "site.conf").write_text(config)
    temporary = " ".join(
        f"{name}_temp_path {tmp_path};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = tmp_path / "nginx.conf"
    main.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary} include {tmp_path}/site.conf; }}\n"
    )
    options = ["-c", str(main), "-p", str(tmp_path)]
    checked = subprocess.run([NGINX, "-t", "-q", *options], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    process = await asyncio.create_subprocess_exec(NGINX, *options, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: _is_open(secure))
        yield f"https://localhost:{secure}"
    finally:
        process.terminate()
        await process.wait()


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
