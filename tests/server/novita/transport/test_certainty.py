"""After a failed create: whether it is certain that no machine was made."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from server.errors import CircuitOpen, NovitaError, ProviderError, ProviderTimeout, ProviderUnreachable, RateLimited
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance, TemplateDraft, UpgradeInstance
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.retry import MonotonicClock, RetryPolicy
from server.simulator.faults import Fault, FaultKind
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.server.novita.parts import DROP, HANG, SkippingClock, answer, client_of, provider, refusal
from tests.support.waiting import until

REQUEST = CreateInstance(name="a-7", product_id="p", image="ubuntu", rootfs_gb=10)


async def failure_of(client: NovitaClient) -> NovitaError:
    with pytest.raises(NovitaError) as failure:
        await client.create_instance(REQUEST)
    return failure.value


@pytest.mark.parametrize(
    "refused",
    [
        refusal(400, "VALIDATOR_PARAM", "no"),
        refusal(400, "INSUFFICIENT_RESOURCE", "insufficient resource"),
        refusal(403, "BALANCE_NOT_ENOUGH"),
        refusal(401, "INVALID_API_KEY"),
        refusal(404, "NOT_FOUNT"),
        refusal(422, "A_WORD_OF_TOMORROW"),
        refusal(429, "RATE_LIMIT_EXCEEDED", headers={"Retry-After": "1"}),
        answer(413, b"<html>too large</html>"),
    ],
)
async def test_a_clear_refusal_is_certain_and_is_not_repeated(refused: bytes):
    async with provider(refused) as scripted, client_of(scripted.url) as client:
        assert (await failure_of(client)).is_certain_refusal
        assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    "doubtful",
    [
        refusal(500, "INTERNAL"),
        refusal(500, "INSUFFICIENT_RESOURCE"),
        answer(502, b"<html>"),
        refusal(503),
        answer(504),
        answer(408),
        answer(499),
        refusal(400, "", "invalid state change"),
        refusal(409, "CONFLICT"),
        answer(302, b"", {"Location": "/elsewhere"}),
        answer(200, b""),
        answer(204),
        answer(200, b'{"id":"3560b7fe'),
        answer(200, {"id": ""}),
        answer(200, {"code": 0}),
        answer(200, b"<html>welcome</html>"),
        answer(200, [{"id": "n1"}]),
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nConnection: close\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"220 smtp.example.test ESMTP\r\nConnection: close\r\n\r\n",
        DROP,
        HANG,
    ],
)
async def test_anything_else_that_comes_after_sending_is_in_doubt_and_is_not_repeated(doubtful: bytes):
    async with (
        provider(doubtful) as scripted,
        client_of(scripted.url, request_timeout=timedelta(seconds=1)) as client,
    ):
        assert not (await failure_of(client)).is_certain_refusal
        assert len(scripted.requests) == 1


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(SimulatorOptions(stock_factor=100)) as simulator:
        yield simulator


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (FaultKind.HANG, 0),
        (FaultKind.DROP, 0),
        (FaultKind.BAD_GATEWAY, 0),
        (FaultKind.HANG_AFTER, 1),
        (FaultKind.LOST_ANSWER, 1),
        (FaultKind.ERROR_AFTER, 1),
        (FaultKind.CUT_JSON, 1),
        (FaultKind.CUT_CONNECTION, 1),
    ],
)
async def test_doubt_is_the_same_whether_something_was_made_or_not(simulator: Simulator, kind: FaultKind, made: int):
    route = "POST /gpu/instance/create"
    async with client_of(simulator.url, request_timeout=timedelta(seconds=1)) as client:
        product = (await client.products())[0]
        simulator.world.faults.set([Fault(kind, routes=(route,))])
        request = CreateInstance(name="b-8", product_id=product.id, image="ubuntu", rootfs_gb=10)
        with pytest.raises(NovitaError) as failure:
            await client.create_instance(request)
    assert not failure.value.is_certain_refusal
    assert simulator.world.calls[route] == 1
    assert simulator.world.made["b-8"] == made


def closed_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


async def test_a_refused_connection_is_certain():
    async with client_of(f"http://127.0.0.1:{closed_port()}") as client:
        failure = await failure_of(client)
    assert isinstance(failure, ProviderUnreachable)
    assert failure.is_certain_refusal


async def test_a_name_that_does_not_resolve_is_certain():
    async with client_of("http://nowhere.invalid", request_timeout=timedelta(seconds=4)) as client:
        assert (await failure_of(client)).is_certain_refusal


async def test_an_address_that_is_none_is_certain():
    async with client_of("nonsense") as client:
        assert (await failure_of(client)).is_certain_refusal


async def test_a_failed_handshake_is_certain():
    async def speak_first(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 This is no TLS\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(speak_first, "127.0.0.1", 0)
    async with plain, client_of(f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}") as client:
        assert (await failure_of(client)).is_certain_refusal


async def test_a_connection_that_does_not_come_about_in_time_is_certain():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        crowd = [socket.socket() for _ in range(4)]  # never accepted: they fill the backlog
        for each in crowd:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with client_of(url, request_timeout=timedelta(seconds=0.4)) as client:
            failure = await failure_of(client)
        for each in crowd:
            each.close()
    assert isinstance(failure, ProviderUnreachable)
    assert failure.is_certain_refusal


async def test_an_open_breaker_is_certain():
    clock = SkippingClock()
    async with provider(refusal(500)) as scripted, client_of(scripted.url, clock=clock) as client:
        for _ in range(5):
            await failure_of(client)
        failure = await failure_of(client)
        assert isinstance(failure, CircuitOpen)
        assert failure.is_certain_refusal
        assert len(scripted.requests) == 5


@pytest.mark.parametrize("status", [400, 404, 408, 409, 422, 429, 499])
async def test_no_client_error_opens_the_breaker(status: int):
    async with provider(answer(status)) as scripted, client_of(scripted.url) as client:
        for _ in range(20):
            await failure_of(client)
        assert len(scripted.requests) == 20
        assert client.breaker.snapshot().circuits == {}


async def test_a_place_in_our_own_line_that_takes_too_long_is_certain():
    retry = RetryPolicy(deadline=timedelta(seconds=0.1))
    async with (
        provider(answer(200, {"id": "n1"})) as scripted,
        client_of(scripted.url, rate_limit_per_minute=1, retry=retry, clock=MonotonicClock()) as client,
    ):
        await client.create_instance(REQUEST)
        failure = await failure_of(client)
        assert isinstance(failure, RateLimited)
        assert failure.is_certain_refusal
        assert len(scripted.requests) == 1
        assert client.limiter.snapshot().waiting[CallPriority.USER] == 0


async def test_a_closed_client_is_certain_and_does_not_wait():
    clock = SkippingClock()
    client = client_of("http://127.0.0.1:9", clock=clock)
    assert (await failure_of(client)).is_certain_refusal
    with pytest.raises(ProviderUnreachable):
        await client.clusters()
    assert clock.waits == []
    assert client.breaker.snapshot().circuits == {}


async def test_closing_ends_the_calls_that_stand_in_line():
    client = client_of("http://127.0.0.1:9", rate_limit_per_minute=1, clock=MonotonicClock())
    await client.open()
    with pytest.raises(ProviderUnreachable):
        await client.create_instance(REQUEST)
    waiting = asyncio.create_task(client.clusters(priority=CallPriority.POLL))
    await until(lambda: client.limiter.snapshot().waiting[CallPriority.POLL])
    await client.close()
    with pytest.raises(ProviderUnreachable):
        await waiting


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client.create_instance(REQUEST),
        lambda client: client.restart_instance("n1"),
        lambda client: client.migrate_instance("n1"),
        lambda client: client.renew_instance("n1", months=1),
        lambda client: client.to_monthly_instance("n1", months=1),
        lambda client: client.upgrade_instance("n1", UpgradeInstance(image="i")),
        lambda client: client.edit_instance("n1", expand_rootfs_gb=10),
        lambda client: client.create_template(TemplateDraft(name="t", image="i", rootfs_gb=10)),
        lambda client: client.save_registry_auth(name="r", username="u", password=SecretStr("p")),
        lambda client: client.save_image("n1", image="i"),
        lambda client: client.create_network_storage(cluster_id="c", name="s", size_gb=10),
        lambda client: client.create_network(cluster_id="c", name="n"),
        lambda client: client.prewarm(image="i", cluster_id="c", product_ids=["p"]),
    ],
)
async def test_what_makes_or_bills_something_is_sent_once(make: Callable[[NovitaClient], Any]):
    for failing in (refusal(500), refusal(429, headers={"Retry-After": "1"}), DROP):
        async with provider(failing) as scripted, client_of(scripted.url) as client:
            with pytest.raises(NovitaError):
                await make(client)
            assert len(scripted.requests) == 1


async def test_a_timeout_is_distinguished_from_a_broken_connection():
    async with provider(HANG) as scripted, client_of(scripted.url, request_timeout=timedelta(seconds=0.2)) as client:
        assert isinstance(await failure_of(client), ProviderTimeout)
    async with provider(DROP) as scripted, client_of(scripted.url) as client:
        assert isinstance(await failure_of(client), ProviderUnreachable)


VERBS = pytest.mark.parametrize(
    "make",
    [
        lambda client: client.start_instance("n1"),
        lambda client: client.stop_instance("n1"),
        lambda client: client.restart_instance("n1"),
        lambda client: client.migrate_instance("n1"),
        lambda client: client.delete_instance("n1"),
        lambda client: client.edit_instance("n1", expand_rootfs_gb=10),
        lambda client: client.upgrade_instance("n1", UpgradeInstance(image="i")),
    ],
    ids=["start", "stop", "restart", "migrate", "delete", "edit", "upgrade"],
)


@pytest.mark.parametrize("body", [b"OK", b"null", b"", b" ", b"[]", b'"accepted"', b"true", b'{"state":1}'])
@VERBS
async def test_any_success_of_a_verb_means_accepted_whatever_its_body(make: Callable[[NovitaClient], Any], body: bytes):
    async with provider(answer(202, body)) as scripted, client_of(scripted.url) as client:
        await make(client)
        assert len(scripted.requests) == 1


@VERBS
async def test_a_page_with_a_success_says_nothing_about_a_verb(make: Callable[[NovitaClient], Any]):
    """A gateway shows it, for example during maintenance: the API has not seen the request."""
    page = answer(200, b" <html><body>maintenance mode</body></html>")
    async with provider(page) as scripted, client_of(scripted.url) as client:
        with pytest.raises(ProviderError) as failed:
            await make(client)
        assert not failed.value.is_certain_refusal
