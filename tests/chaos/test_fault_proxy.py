"""The fault proxy injects the requested faults, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import until

QUIET = 0.3  # seconds in which nothing may come


class Echo:
    """A server that says back what it hears."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(4096):
                self.heard += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.ended += 1
            writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[FaultProxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with FaultProxy(server.sockets[0].getsockname()[1], seed=1) as proxy:
        yield proxy
    server.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def says(self, words: bytes) -> None:
        self.writer.write(words)
        await self.writer.drain()

    async def hears(self, words: bytes) -> None:
        async with asyncio.timeout(30):
            assert await self.reader.readexactly(len(words)) == words

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET):
                await self.reader.read(1)

    async def is_reset(self) -> None:
        async with asyncio.timeout(30):
            with pytest.raises(ConnectionResetError):
                await self.reader.read(1)

    def hangs_up(self) -> None:
        self.writer.transport.abort()


clients: list[Client] = []


@pytest.fixture(autouse=True)
async def clients_that_hang_up() -> AsyncIterator[None]:
    yield
    for client in clients:
        client.hangs_up()
    clients.clear()


async def connect(proxy: FaultProxy) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", proxy.port))
    clients.append(client)
    return client


async def talking(proxy: FaultProxy) -> Client:
    client = await connect(proxy)
    await client.says(b"hello")
    await client.hears(b"hello")
    return client


async def test_a_network_without_faults_carries_everything_both_ways_and_ends_in_order(proxy: FaultProxy):
    client = await connect(proxy)
    words = bytes(range(256)) * 1000
    sending = asyncio.create_task(client.says(words))
    await client.hears(words)
    await sending
    client.writer.write_eof()

    assert await client.reader.read() == b""
    await until(lambda: proxy.connections == 0)


async def test_a_cut_network_resets_what_is_there_and_what_comes_until_it_is_mended(proxy: FaultProxy):
    client = await talking(proxy)
    proxy.cut()
    await client.is_reset()
    await (await connect(proxy)).is_reset()

    proxy.mend()
    await talking(proxy)


async def test_a_reset_ends_the_connections_of_this_moment_only(proxy: FaultProxy):
    client = await talking(proxy)
    proxy.reset()
    await client.is_reset()
    await talking(proxy)


async def test_data_sent_during_silence_arrives_afterwards(proxy: FaultProxy, echo: Echo):
    client = await talking(proxy)
    proxy.silence()
    await client.says(b" there")
    await client.hears_nothing()
    assert echo.heard == b"hello"

    proxy.mend()
    await client.hears(b" there")


async def test_of_two_directions_one_alone_can_be_silent(proxy: FaultProxy, echo: Echo):
    client = await talking(proxy)
    proxy.silence(up=False)
    await client.says(b" there")
    await client.hears_nothing()

    assert echo.heard == b"hello there"


async def test_data_sent_during_silence_is_lost_if_the_client_hung_up(proxy: FaultProxy, echo: Echo):
    client = await talking(proxy)
    proxy.silence()
    await client.says(b" there")
    await asyncio.sleep(QUIET)
    client.writer.close()
    await asyncio.sleep(QUIET)

    proxy.mend()
    await until(lambda: echo.ended == 1)
    assert echo.heard == b"hello"


async def test_the_client_of_a_half_open_connection_gets_no_notice(proxy: FaultProxy, echo: Echo):
    client = await talking(proxy)
    proxy.half_open()
    await until(lambda: echo.ended == 1)
    await client.says(b" there")
    proxy.mend()
    await client.hears_nothing()

    assert echo.heard == b"hello"
    await talking(proxy)


async def test_a_slow_network_takes_its_time_in_each_direction(proxy: FaultProxy):
    client = await talking(proxy)
    proxy.slow(0.2, jitter=0.05)
    began = time.monotonic()
    await client.says(b"x")
    await client.hears(b"x")

    assert time.monotonic() - began >= 0.4


async def test_a_narrow_network_lets_so_many_bytes_through_in_a_second(proxy: FaultProxy):
    client = await talking(proxy)
    proxy.narrow(10_000, up=False)
    began = time.monotonic()
    await client.says(b"x" * 4000)
    await client.hears(b"x" * 4000)

    assert time.monotonic() - began >= 0.35


async def test_a_connection_can_break_in_the_middle_of_a_message(proxy: FaultProxy, echo: Echo):
    client = await talking(proxy)
    proxy.break_after(3)
    await client.says(b" there")
    await client.is_reset()

    assert echo.heard in (b"hello", b"hello th")  # the reset may overtake what was under way
    await talking(proxy)
