"""Clients behind proxies: each has its own limits, and none can claim to be another."""

from contextlib import AsyncExitStack
from ipaddress import ip_network

import pytest
from pydantic import ValidationError

from server.config import Settings
from server.graphql.transports.scope import network_of
from server.http.proxies import TrustedProxies
from tests.server.graphql.transports.test_hostile_clients import line
from tests.server.graphql.transports.test_strangers import get, upgrade
from tests.support.api import Api
from tests.support.api_server import serving

PROXIES = TrustedProxies((ip_network("10.0.0.0/8"), ip_network("2001:db8:1::/48")))


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        ([], "10.0.0.1"),
        ([b"203.0.113.7"], "203.0.113.7"),
        ([b"198.51.100.1, 203.0.113.7"], "203.0.113.7"),  # the first is what the client claims
        ([b"198.51.100.1, 203.0.113.7, 10.1.2.3"], "203.0.113.7"),  # two proxies of ours
        ([b"198.51.100.1", b"203.0.113.7"], "203.0.113.7"),
        ([b"10.9.9.9"], "10.9.9.9"),
        ([b"203.0.113.7:4711"], "203.0.113.7"),
        ([b"[2001:db8:9::1]:4711"], "2001:db8:9::1"),
        ([b"203.0.113.7, 2001:db8:1::2"], "203.0.113.7"),
        ([b"::ffff:203.0.113.7"], "203.0.113.7"),
        ([b"203.0.113.7, nonsense"], "10.0.0.1"),
        ([b"203.0.113.7,"], "10.0.0.1"),
        ([b"unknown"], "10.0.0.1"),
        ([b"\xff\x00"], "10.0.0.1"),
        ([b"fe80::1%eth0"], "10.0.0.1"),
    ],
)
def test_the_header_is_read_from_its_end_and_only_as_far_as_proxies_wrote_it(lines: list[bytes], client: str):
    headers = [(b"host", b"x"), *((b"x-forwarded-for", value) for value in lines)]
    assert PROXIES.client_of("10.0.0.1", headers) == client


def test_without_trusted_proxies_no_address_is_one():
    assert not TrustedProxies(()).trusts("127.0.0.1")
    assert not PROXIES.trusts("")
    assert PROXIES.trusts("::ffff:10.0.0.1")


def test_an_ipv6_client_counts_with_its_network():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"


def test_networks_are_checked_at_start():
    settings = Settings(trusted_proxies="10.0.0.5, 2001:db8::/32")  # type: ignore[arg-type]
    assert settings.trusted_proxies == (ip_network("10.0.0.5/32"), ip_network("2001:db8::/32"))
    for wrong in ("10.0.0.1/8", "proxy.example", "*"):
        with pytest.raises(ValidationError, match="addresses or networks"):
            Settings(trusted_proxies=wrong)  # type: ignore[arg-type]


async def test_each_client_behind_a_proxy_has_its_own_connections(api: Api):
    async with (
        serving(
            api.server.runtime.database_url, api.server.simulator, trusted_proxies="127.0.0.1", strangers_per_address=2
        ) as server,
        AsyncExitStack() as stack,
    ):

        async def status(request: bytes) -> int:
            wire = await stack.enter_async_context(line(server))
            wire.send(request)
            return int((await wire.reader.readuntil(b"\r\n\r\n")).split()[1])

        def socket_of(client: str) -> bytes:
            return upgrade(server, f"x-forwarded-for: 203.0.113.99, {client}")

        # A WebSocket of a stranger stays; a connection without a request in progress is only the proxy's.
        assert [await status(socket_of("203.0.113.1")) for _ in range(3)] == [101, 101, 503]
        assert [await status(socket_of("203.0.113.2")) for _ in range(3)] == [101, 101, 503]
        assert await status(get(server, "/healthz", "x-forwarded-for: 203.0.113.2")) == 503
        for _ in range(6):
            assert await status(get(server, "/healthz", "x-forwarded-for: 203.0.113.3")) == 200


async def test_each_client_behind_a_proxy_has_its_own_wrong_tokens(api: Api):
    async with serving(
        api.server.runtime.database_url, api.server.simulator, trusted_proxies="127.0.0.1", wrong_token_limit=1
    ) as server:

        async def status(client: str, token: str) -> int:
            headers = {"authorization": f"Bearer {token}", "x-forwarded-for": client}
            body = {"query": "{ __typename }"}
            async with server.http.post(f"http://{server.address}/graphql", json=body, headers=headers) as response:
                return response.status

        assert [await status("203.0.113.1", f"pl_{n}") for n in range(2)] == [401, 429]
        assert [await status("203.0.113.2", f"pl_{n}") for n in range(2)] == [401, 429]
        assert await status("203.0.113.3", api.token) == 200


async def test_from_others_the_header_is_not_read(api: Api):
    async with (
        serving(
            api.server.runtime.database_url,
            api.server.simulator,
            trusted_proxies="192.0.2.0/24",
            strangers_per_address=2,
        ) as server,
        line(server) as one,
        line(server) as two,
        line(server) as three,
    ):
        for n, wire in enumerate((one, two)):
            wire.send(get(server, "/healthz", f"x-forwarded-for: 203.0.113.{n}"))
            assert (await wire.answer())[0] == 200
        assert (await three.answer())[0] == 503
