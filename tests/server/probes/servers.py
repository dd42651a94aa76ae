"""Real servers that misbehave, one way each."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(behave: Behave, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address, host:port, of a server that reads a request's head and then runs the handler."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await behave(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(head: str, body: bytes = b"") -> Behave:
    """Send exactly these bytes."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return behave


def page(status: int, body: bytes, type: str = "text/html", extra: str = "") -> Behave:
    return answering(
        f"HTTP/1.1 {status} Whatever\ncontent-type: {type}\ncontent-length: {len(body)}\nconnection: close{extra}", body
    )


def redirecting(location: Callable[[str], str]) -> Behave:
    """302 to the result of `location` for the requested path."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        to = location(path)
        answer = f"HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        if not to:
            answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
        writer.write(answer.encode())
        await writer.drain()

    return behave


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def close_silently(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def black_hole(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()
    await asyncio.sleep(3600)


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.05)


class Endless:
    """An endless body, and how many bytes of it were read."""

    sent = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 4096)
            await writer.drain()
            self.sent += 4096


async def huge_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        writer.write(f"x-{number}: {'y' * 1000}\r\n".encode())
        await writer.drain()


async def noise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """HTTP/0.9 and other invalid responses."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"<html>hello\x00\xff\xfe from 1991</html>\n" * 10)
    await writer.drain()
