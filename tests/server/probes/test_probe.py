"""One probe against real servers: each failure has its code, and none does harm."""

import asyncio
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from server.probes.plan import CheckPlan, ProbeTarget
from server.probes.probe import BODY_MAX, ProbeOutcome, Prober
from server.probes.problems import ERROR_TRAITS, ErrorKind
from server.ssrf import PrivateAddresses
from tests.server.probes import servers
from tests.server.probes.servers import answering, page, redirecting, serving

PLAN = CheckPlan(timeout=timedelta(seconds=5), retries=0, delay=timedelta(seconds=1), max_wait=timedelta(minutes=1))
IMPATIENT = CheckPlan(
    timeout=timedelta(milliseconds=300), retries=0, delay=timedelta(seconds=1), max_wait=timedelta(minutes=1)
)
BAD_GATEWAY = (
    b"<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>"
)


def http(address: str) -> ProbeTarget:
    return ProbeTarget(80, "http", address if "://" in address else f"http://{address}")


def tcp(address: str) -> ProbeTarget:
    return ProbeTarget(22, "tcp", address)


def expect(finding: ProbeOutcome, error: ErrorKind | None, status: int | None = None) -> None:
    assert (finding.error, finding.http_status) == (error, status), finding


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("status", [200, 204, 301, 399])
async def test_any_answer_below_400_is_healthy(prober: Prober, status: int):
    async with serving(page(status, b"" if status == 204 else b"hello")) as at:
        finding = await prober.probe(http(at), PLAN)
        expect(finding, None, status)
        assert timedelta(0) < finding.latency < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.CLIENT_ERROR),
        (404, ErrorKind.CLIENT_ERROR),
        (429, ErrorKind.CLIENT_ERROR),
        (500, ErrorKind.SERVER_ERROR),
        (502, ErrorKind.BAD_GATEWAY),
        (503, ErrorKind.SERVICE_UNAVAILABLE),
        (504, ErrorKind.BAD_GATEWAY),
        (599, ErrorKind.SERVER_ERROR),
    ],
)
async def test_other_answers_are_sorted_by_their_status(prober: Prober, status: int, kind: ErrorKind):
    async with serving(page(status, b"sorry")) as at:
        expect(await prober.probe(http(at), PLAN), kind, status)


async def test_only_the_expected_statuses_will_do_if_there_are_any(prober: Prober):
    plan = CheckPlan(**{**_fields(PLAN), "expected_statuses": frozenset({401})})
    async with serving(page(401, b"")) as at:
        expect(await prober.probe(http(at), plan), None, 401)
    async with serving(page(200, b"")) as at:
        expect(await prober.probe(http(at), plan), ErrorKind.CLIENT_ERROR, 200)


async def test_the_path_is_asked_for(prober: Prober):
    asked: list[str] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    plan = CheckPlan(**{**_fields(PLAN), "path": "/health?deep=%2Fyes"})
    async with serving(behave) as at:
        expect(await prober.probe(http(at), plan), None, 200)
    assert asked == ["GET /health?deep=%2Fyes HTTP/1.1"]


@pytest.mark.parametrize("target", [http, tcp])
async def test_nothing_listening_is_refused(prober: Prober, target: Callable[[str], ProbeTarget]):
    expect(await prober.probe(target(f"127.0.0.1:{free_port()}"), PLAN), ErrorKind.CONNECTION_REFUSED)


@pytest.mark.parametrize("behave", [servers.reset, servers.close_silently])
async def test_a_broken_connection_is_a_reset(prober: Prober, behave: servers.Behave):
    async with serving(behave) as at:
        expect(await prober.probe(http(at), PLAN), ErrorKind.CONNECTION_RESET)


async def test_a_body_that_is_cut_off_is_a_reset(prober: Prober):
    async with serving(answering("HTTP/1.1 200 OK\ncontent-length: 1000", b"only this")) as at:
        expect(await prober.probe(http(at), PLAN), ErrorKind.CONNECTION_RESET)


@pytest.mark.parametrize("behave", [servers.black_hole, servers.slow_body])
async def test_a_black_hole_and_a_slow_body_take_no_longer_than_the_timeout(prober: Prober, behave: servers.Behave):
    began = time.monotonic()
    async with serving(behave) as at:
        expect(await prober.probe(http(at), IMPATIENT), ErrorKind.TIMEOUT)
    assert time.monotonic() - began < 20


async def test_an_endless_body_is_read_to_a_bound(prober: Prober):
    endless = servers.Endless()
    async with serving(endless) as at:
        expect(await prober.probe(http(at), PLAN), None, 200)
    # The rest is in buffers: ours and those of two sockets.
    assert endless.sent < BODY_MAX + 16 * 1024 * 1024


async def test_a_packed_body_is_not_unpacked(prober: Prober):
    async with serving(page(200, b"\x1f\x8b" + b"\x00" * 100, extra="\ncontent-encoding: gzip")) as at:
        expect(await prober.probe(http(at), PLAN), None, 200)


async def test_a_gateways_error_page_with_status_200_is_no_health(prober: Prober):
    async with serving(page(200, BAD_GATEWAY)) as at:
        finding = await prober.probe(http(at), PLAN)
    expect(finding, ErrorKind.BODY_ERROR, 200)
    assert finding.message == 'HTTP status 200, but the body says "bad gateway"'


@pytest.mark.parametrize("behave", [servers.huge_headers, servers.noise])
async def test_what_is_not_http_is_a_server_error(prober: Prober, behave: servers.Behave):
    async with serving(behave) as at:
        expect(await prober.probe(http(at), PLAN), ErrorKind.SERVER_ERROR)


async def test_a_redirect_to_another_host_is_an_answer_and_not_followed(prober: Prober):
    visited: list[str] = []

    def elsewhere(path: str) -> str:
        visited.append(path)
        return ""

    async with serving(redirecting(elsewhere)) as other:
        for location in (
            f"http://localhost:{other.split(':')[1]}/",
            f"http://{other}/",
            f"//{other}/",
            "file:///etc/passwd",
        ):
            async with serving(redirecting(lambda _path, to=location: to)) as at:
                expect(await prober.probe(http(at), PLAN), None, 302)
    assert visited == []


async def test_a_redirect_on_the_same_host_is_followed(prober: Prober):
    async with serving(redirecting(lambda path: "/login" if path == "/" else "")) as at:
        expect(await prober.probe(http(at), PLAN), None, 200)


async def test_a_redirect_loop_ends(prober: Prober):
    visited: list[str] = []

    def round_and_round(path: str) -> str:
        visited.append(path)
        return "/b" if path != "/b" else "/a"

    async with serving(redirecting(round_and_round)) as at:
        expect(await prober.probe(http(at), PLAN), ErrorKind.SERVER_ERROR)
    assert len(visited) == 6


async def test_an_unknown_name_is_dns(prober: Prober):
    expect(await prober.probe(http("no-such-host.invalid"), PLAN), ErrorKind.DNS)
    expect(await prober.probe(tcp("no-such-host.invalid:22"), PLAN), ErrorKind.DNS)


@pytest.mark.parametrize("address", ["http://10.0.0.1/", "http://169.254.169.254/", "http://[::ffff:10.0.0.1]/"])
async def test_an_address_inside_is_unreachable(prober: Prober, address: str):
    expect(await prober.probe(ProbeTarget(80, "http", address), PLAN), ErrorKind.UNREACHABLE)


async def test_loopback_is_for_the_simulator_only():
    prober = Prober(private_addresses=PrivateAddresses.OFF)
    try:
        async with serving(page(200, b"secret")) as at:
            expect(await prober.probe(http(at), PLAN), ErrorKind.UNREACHABLE)
            expect(await prober.probe(tcp(at), PLAN), ErrorKind.UNREACHABLE)
    finally:
        await prober.close()


@pytest.mark.parametrize("address", [None, "", "http://", "http://[", "://", "not a url at all", "http://x:99999/"])
async def test_an_address_that_is_none_is_unreachable(prober: Prober, address: str | None):
    for type in ("http", "tcp"):
        finding = await prober.probe(ProbeTarget(80, type, address), PLAN)
        assert finding.error in (ErrorKind.UNREACHABLE, ErrorKind.DNS), finding


async def test_a_tcp_endpoint_that_accepts_is_healthy(prober: Prober):
    async with serving(servers.black_hole) as at:
        expect(await prober.probe(tcp(at), PLAN), None)
        expect(await prober.probe(tcp(f"tcp://{at}"), PLAN), None)


async def test_a_probe_takes_no_longer_than_it_is_given(prober: Prober):
    began = time.monotonic()
    async with serving(servers.black_hole) as at:
        expect(await prober.probe(http(at), PLAN, within=timedelta(milliseconds=200)), ErrorKind.TIMEOUT)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["wrong.example", "right.example"])
async def test_a_certificate_for_another_host_is_tls(name: str, tmp_path: Path):
    """Both names resolve to one server, whose trusted certificate has only one of them."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    await _certificate(tmp_path, "right.example")
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    async with serving(page(200, b"hello"), tls=here) as at:
        prober = Prober(private_addresses=PrivateAddresses.LOOPBACK, resolver=Loopback(), tls=trusting)
        try:
            finding = await prober.probe(http(f"https://{name}:{at.split(':')[1]}/"), PLAN)
        finally:
            await prober.close()
    if name == "right.example":
        expect(finding, None, 200)
    else:
        expect(finding, ErrorKind.TLS)
        assert "Hostname mismatch" in str(finding.message)


async def test_https_to_a_server_that_speaks_plain_http_is_tls(prober: Prober):
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with serving(plain) as at:
        expect(await prober.probe(http(f"https://{at}/"), PLAN), ErrorKind.TLS)


def test_every_kind_says_how_bad_it_is_and_whether_to_try_again():
    assert set(ERROR_TRAITS) == set(ErrorKind)


def _fields(plan: CheckPlan) -> dict[str, object]:
    return {name: getattr(plan, name) for name in plan.__slots__}


class Loopback(AbstractResolver):
    """Resolves all names to the test server."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


async def _certificate(folder: Path, name: str) -> None:
    command = (
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-subj", f"/CN={name}",
        "-addext", f"subjectAltName=DNS:{name}",
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


@pytest.mark.parametrize("path", ["//{other}/x", "///{other}/x", "/\\{other}/x", "@{other}/x", ".{other}/x"])
async def test_a_stored_path_never_leads_to_another_host(prober: Prober, path: str):
    """A row of an older version may have such a path."""
    visited: list[str] = []

    def note(path: str) -> str:
        visited.append(path)
        return ""

    async with serving(redirecting(note)) as other, serving(page(200, b"hello")) as at:
        plan = replace(PLAN, path=path.format(other=other))
        finding = await prober.probe(http(at), plan)
        expect(finding, *((None, 200) if path.startswith("/") else (ErrorKind.UNREACHABLE, None)))
    assert visited == []
