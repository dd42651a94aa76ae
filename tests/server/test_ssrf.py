# ruff: noqa: RUF001 - hosts that only look like others are what this is about
"""SSRF protection: whatever a URL looks like, nothing is sent to a private address.

The sockets themselves are watched, by the interpreter's own audit of every connect.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from server.ssrf import AddressBlocked, PrivateAddresses, checked_socket_factory, is_allowed
from server.webhooks.sender import DeliveryResult, Sender
from server.webhooks.signing import SigningKey
from server.webhooks.urls import url_problem

KEY = SigningKey(b"a key that only tests sign with")

# Each of these is, for some resolver, library or router, an address that is not on the public internet.
LOOPBACK = (
    "127.0.0.1", "127.0.0.2", "127.1", "127.0.1", "127.255.255.254", "2130706433", "017700000001", "0x7f000001",
    "0x7f.0x0.0x0.0x1", "0177.0.0.1", "0177.0x0.0.1", "127.0.0.01", "0x7f.1", "0", "0.0.0.0", "0x0", "00000000",
    "localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1.", "[::1]", "[0:0:0:0:0:0:0:1]", "[::]",
    "[0000::0001]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
)  # fmt: skip
LOOKALIKES = (
    "①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "ⓛocalhost", "ｌｏｃａｌｈｏｓｔ",
    "loc\u00adalhost",
    "𝟏𝟐𝟕.𝟎.𝟎.𝟏", "¹²⁷.⁰.⁰.¹", "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "%6c%6f%63alhost",
)  # fmt: skip
PRIVATE = (
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.1.254", "100.64.0.1",
    "100.127.255.255", "167772161", "0xa000001", "012.0.0.1", "0xc0a80001", "3232235521", "10.1", "192.168.257",
    "169.254.169.254", "169.254.170.2", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376",
    "169.254.43518", "100.100.100.200", "192.0.0.192", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "4294967295", "[fe80::1]", "[fe80::1%25lo]", "[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[fdff:ffff::1]",
    "[ff02::1]", "[ff0e::1]", "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::10.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::10.0.0.1]",
    "[2002:7f00:1::]", "[2002:a00:1::1]", "[2002:a9fe:a9fe::]", "[2002:c0a8:1::1]",
    "[2001:0:0:0:0:0:f5ff:fffe]", "[2001::1]", "[2001:db8::1]", "[2001:10::1]", "[2001:20::1]", "[3fff::1]",
    "168.63.129.16", "161.26.0.10", "166.9.0.1", "[fd20:ce::254]", "[::ffff:168.63.129.16]",
    "[100::1]", "[2620:4f:8000::1]", "[::10.0.0.1]", "[5f00::1]", "[4000::1]",
)  # fmt: skip
HOSTS = (*LOOPBACK, *LOOKALIKES, *PRIVATE)
ODD = (
    "http://example.com@{at}/", "http://user:secret@{at}/", "http://{at}#@example.com/", "http://{at}?@example.com/",
    "http:/{at}/", "http:{at}/", "//{at}/", "http:///{at}/", "http://{at}\\@example.com/", "http://example.com\\@{at}/",
    "http://example.com:80@{at}/", "http:// {at}/", "http://{at} /", "http://\t{at}/", "http://{at}\n/", "\x00http://{at}/",
    "HTTP://{at}/\r\nx: y", "file:///etc/passwd", "gopher://{at}/_GET", "ftp://{at}/", "dict://{at}/", "ldap://{at}/",
    "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "ws://{at}/", "javascript:alert(1)",
    "data:text/plain,hello", "jar:http://{at}!/", "http://[{at}]/", "http://[::1", "http://", "", "http://:80/",
    "http://{at}:0/", "http://{at}:99999/", "http://{at}:-1/", "http://[v1.fe80::a]/", "http://..../", "http://{at}:80:80/",
)  # fmt: skip


class Watch:
    """All connects of this process, from an audit hook, which can't be removed."""

    def __init__(self) -> None:
        self.is_on = False
        self.connects: list[Any] = []

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self.is_on and event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            self.connects.append(args[1:])


WATCH = Watch()
sys.addaudithook(WATCH.hear)


@pytest.fixture
def watch() -> Iterator[Watch]:
    WATCH.connects.clear()
    WATCH.is_on = True
    yield WATCH
    WATCH.is_on = False


class Listener:
    """A private server on all addresses of this machine; it must receive no connection."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.port = 0

    async def start(self) -> asyncio.Server:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        made = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
        server = await asyncio.start_server(self._handle, sock=made)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.read(100))
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await listener.start()
    yield listener
    server.close()


async def send(
    url: str, *, inside: PrivateAddresses = PrivateAddresses.OFF, resolver: AbstractResolver | None = None
) -> DeliveryResult:
    sender = Sender(timeout=timedelta(seconds=5), key=KEY, private_addresses=inside, resolver=resolver)
    try:
        return await sender.send(url, "{}", {})
    finally:
        await sender.close()


def test_there_are_enough_of_them():
    assert len(set(HOSTS)) + len(set(ODD)) >= 140


@pytest.mark.parametrize("host", HOSTS)
async def test_a_host_inside_is_never_connected_to(host: str, watch: Watch, listener: Listener):
    answer = await send(f"http://{host}:{listener.port}/hook")

    assert answer.error in ("ADDRESS_NOT_ALLOWED", "INVALID_URL", "DNS", "NO_CONNECTION"), answer
    assert watch.connects == []
    assert listener.heard == []


@pytest.mark.parametrize("form", ODD)
async def test_an_odd_url_is_refused_when_given_and_never_connected_to(form: str, watch: Watch, listener: Listener):
    url = form.replace("{at}", f"127.0.0.1:{listener.port}" if ":80" not in form and ":0" not in form else "127.0.0.1")

    assert url_problem(url, PrivateAddresses.OFF) is not None
    answer = await send(url)

    assert answer.error is not None
    assert watch.connects == []
    assert listener.heard == []


@pytest.mark.parametrize("host", [*LOOPBACK, *PRIVATE])
def test_an_address_inside_is_refused_when_it_is_given(host: str):
    assert url_problem(f"http://{host}/", PrivateAddresses.OFF) is not None


class Named(AbstractResolver):
    """A hostile resolver: each query gets the next address."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
            for address in addresses
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
    ],
)
async def test_a_good_name_that_leads_inside_is_not_followed(address: str, watch: Watch, listener: Listener):
    url = f"http://hooks.example.com:{listener.port}/"
    assert url_problem(url, PrivateAddresses.OFF) is None

    answer = await send(url, resolver=Named([address]))

    assert answer.error == "ADDRESS_NOT_ALLOWED"
    assert watch.connects == []
    assert listener.heard == []


async def test_a_name_that_changes_its_address_between_two_lookups_is_refused(watch: Watch, listener: Listener):
    """The first DNS result would pass an early check; the socket's address counts."""
    resolver = Named(["192.0.2.1"], ["127.0.0.1"])
    sender = Sender(timeout=timedelta(seconds=5), key=KEY, resolver=resolver)
    try:
        for _ in range(3):
            assert (
                await sender.send(f"http://rebind.example:{listener.port}/", "{}", {})
            ).error == "ADDRESS_NOT_ALLOWED"
    finally:
        await sender.close()
    assert resolver.asked == 3
    assert watch.connects == []
    assert listener.heard == []


async def test_all_addresses_of_a_name_are_checked(watch: Watch, listener: Listener):
    answer = await send(f"http://many.example:{listener.port}/", resolver=Named(["127.0.0.1", "::1", "10.0.0.1"]))
    assert answer.error == "ADDRESS_NOT_ALLOWED"
    assert watch.connects == []


async def test_a_redirect_inside_is_not_followed(watch: Watch, listener: Listener):
    """An allowed receiver redirects to an address that is not allowed."""

    async def lead_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        head = f"HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{listener.port}/\r\ncontent-length: 0\r\n\r\n"
        writer.write(head.encode())
        writer.close()

    server = await asyncio.start_server(lead_on, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        answer = await send(f"http://127.0.0.1:{port}/", inside=PrivateAddresses.LOOPBACK)
    finally:
        server.close()

    assert answer.error == "HTTP_307"
    assert len(watch.connects) == 1
    assert listener.heard == []


async def test_loopback_can_be_allowed_without_the_rest(watch: Watch, listener: Listener):
    hosts = ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]")
    for host in hosts[: 4 if socket.has_dualstack_ipv6() else 2]:
        url = f"http://{host}:{listener.port}/"
        assert url_problem(url, PrivateAddresses.LOOPBACK) is None
        await send(url, inside=PrivateAddresses.LOOPBACK)
    assert len(listener.heard) >= 2
    watch.connects.clear()

    for host in PRIVATE:
        assert (await send(f"http://{host}/", inside=PrivateAddresses.LOOPBACK)).error != "TIMEOUT"
    assert watch.connects == []


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::1", "192.0.1.1"])
def test_public_addresses_are_allowed(address: str):
    assert is_allowed(address)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = checked_socket_factory(PrivateAddresses.OFF)((family, socket.SOCK_STREAM, 0, "", (address, 80)))
    made.close()


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_what_is_no_address_gets_no_socket(family: socket.AddressFamily):
    with pytest.raises(AddressBlocked):
        checked_socket_factory(PrivateAddresses.ALL)((family, socket.SOCK_STREAM, 0, "", ("/var/run/docker.sock",)))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "http://example.com:8080/a/b?token=x&y=%20z",
        "https://xn--bcher-kva.example/",
        "https://bücher.example/",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]:8443/",
    ],
)
def test_usual_urls_are_taken(url: str):
    assert url_problem(url, PrivateAddresses.OFF) is None
