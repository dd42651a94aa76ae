"""Whatever a server sends, the caller gets a typed value or a NovitaError."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.errors import NovitaError, ProviderError
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance
from server.novita.transport.http import BODY_MAX
from server.novita.transport.retry import RetryPolicy
from tests.server.novita.parts import ScriptedProvider, answer, client_of, provider

INSTANCE = {
    "id": "n1",
    "status": "running",
    "gpuNum": "1",
    "portMappings": [{"port": 22, "type": "tcp", "endpoint": "h:1"}],
    "envs": [{"key": "A", "value": "é"}],
    "statusError": {"state": "", "message": ""},
    "connectComponentSSH": {"sshCommand": "ssh", "password": "p", "isRunning": True},
}
WHOLE = [
    orjson.dumps(each)
    for each in (
        INSTANCE,
        {"instances": [INSTANCE, INSTANCE], "total": 2},
        {"data": [{"id": "us-ca-6", "name": "US-CA-06 (California)", "price": "35000", "regions": []}]},
        {"template": {"Id": "1", "ports": [{"type": "http", "ports": [80]}]}},
    )
]


def stop(client: NovitaClient) -> Awaitable[None]:
    """The body of its response is ignored."""
    return client.stop_instance("n1")


CALLS: list[Callable[[NovitaClient], Awaitable[Any]]] = [
    lambda client: client.clusters(),
    lambda client: client.products(),
    lambda client: client.instance("n1"),
    lambda client: client.instances(),
    lambda client: client.create_instance(CreateInstance(name="a", product_id="p", image="i", rootfs_gb=10)),
    stop,
    lambda client: client.templates(),
    lambda client: client.template("1"),
    lambda client: client.registry_auths(),
    lambda client: client.network_storages(),
    lambda client: client.networks(),
    lambda client: client.jobs(),
    lambda client: client.prewarms(),
    lambda client: client.metrics("n1"),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*INSTANCE, "data", "instances", "template", "total", "price"]), inner)
    ),
    max_leaves=20,
)
CUT = st.sampled_from(WHOLE).flatmap(lambda whole: st.integers(0, len(whole)).map(lambda end: whole[:end]))
BODIES = (
    JSON.map(lambda value: orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
    | CUT
    | st.binary(max_size=200)
    | st.sampled_from(
        [b"<html><body>maintenance</body></html>", b"[" * 5000, b'"\\ud800"', b"\xff\xfe{}", b"NaN", b"1e999"]
    )
)
HEADERS = st.dictionaries(
    st.sampled_from(["Content-Type", "Retry-After", "Content-Encoding", "Location", "Transfer-Encoding", "Set-Cookie"]),
    st.sampled_from(["application/json", "gzip", "deflate", "chunked", "br", "text/html", "-1", "a=b; path=/", "é"]),
    max_size=2,
)


def whole_answer(status: int, body: bytes, headers: dict[str, str], length_off_by: int) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {max(0, len(body) + length_off_by)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


ANSWERS = (
    st.builds(whole_answer, st.integers(100, 599) | st.just(200), BODIES, HEADERS, st.sampled_from([0, 0, 0, -1, 1]))
    | st.builds(whole_answer, st.just(200), JSON.map(orjson.dumps), st.just({}), st.just(0))
    | st.binary(max_size=300).map(lambda raw: raw + b"\r\nConnection: close\r\n\r\n")
)


@pytest.fixture(scope="module")
async def scripted() -> AsyncIterator[ScriptedProvider]:
    async with provider(answer(200)) as scripted:
        yield scripted


@pytest.fixture(scope="module")
async def client(scripted: ScriptedProvider) -> AsyncIterator[NovitaClient]:
    options: dict[str, Any] = {
        "breaker_threshold": 0,
        "retry": RetryPolicy(attempts=1),
        "request_timeout": timedelta(seconds=5),
    }
    async with client_of(scripted.url, **options) as client:
        yield client


@settings(max_examples=250, deadline=None)
@given(raw=ANSWERS, call=st.sampled_from(CALLS))
async def test_any_answer_is_a_value_or_one_of_our_errors(
    scripted: ScriptedProvider, client: NovitaClient, raw: bytes, call: Callable[[NovitaClient], Awaitable[Any]]
):
    scripted.answers = [raw]
    with suppress(NovitaError):
        repr(await call(client))


@pytest.mark.parametrize("call", [call for call in CALLS if call is not stop])
@pytest.mark.parametrize("body", [b"null", b"[]", b"7", b'"text"', b"{", b"<html>"])
async def test_a_body_of_another_shape_is_a_provider_error(
    scripted: ScriptedProvider, client: NovitaClient, call: Callable[[NovitaClient], Awaitable[Any]], body: bytes
):
    scripted.answers = [answer(200, body)]
    with pytest.raises(ProviderError, match=r"^invalid response: it is not"):
        await call(client)


async def test_an_empty_object_is_no_empty_list(scripted: ScriptedProvider, client: NovitaClient):
    scripted.answers = [answer(200, {})]
    with pytest.raises(ProviderError):
        await client.instances()


async def test_an_item_that_is_no_instance_is_not_skipped(scripted: ScriptedProvider, client: NovitaClient):
    for item in (None, 7, {}, {"status": "running"}):
        scripted.answers = [answer(200, {"instances": [INSTANCE, item], "total": 2})]
        with pytest.raises(ProviderError):
            await client.instances()


async def test_a_huge_body_is_not_read_to_its_end_and_not_asked_for_again():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    async with provider(head + chunk * (BODY_MAX // 0x100000 + 2)) as scripted, client_of(scripted.url) as client:
        with pytest.raises(ProviderError, match="larger than"):
            await client.clusters()
        assert len(scripted.requests) == 1


async def test_a_small_body_that_unpacks_to_a_huge_one_is_not_unpacked_to_its_end():
    bomb = gzip.compress(b" " * (BODY_MAX + 1024), compresslevel=1)
    async with provider(answer(200, bomb, {"Content-Encoding": "gzip"})) as scripted, client_of(scripted.url) as client:
        with pytest.raises(ProviderError, match="larger than"):
            await client.clusters()


async def test_headers_without_end_are_a_provider_error():
    flood = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 4000) for n in range(200)) + b"\r\n"
    async with provider(flood) as scripted, client_of(scripted.url) as client:
        with pytest.raises(NovitaError):
            await client.clusters()


async def test_a_nul_that_the_database_could_not_store_is_dropped(scripted: ScriptedProvider, client: NovitaClient):
    scripted.answers = [answer(200, b'{"id":"n1","name":"a\\u0000b","envs":[{"key":"k","value":"\\\\u0000"}]}')]
    instance = await client.instance("n1")
    assert (instance.name, instance.envs[0].value) == ("ab", "\\u0000")
