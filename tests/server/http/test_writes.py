"""The head of a response leaves together with its body, and an answer without a body is not held back."""

import asyncio
import socket

from tests.support.api import Api

QUERY = b'{"query": "{ __typename }"}'


async def first_segment(api: Api, *lines: str, body: bytes = b"") -> bytes:
    """What a client gets at its first reading; in a thread of its own, so that it reads between two writes."""
    host, port = api.server.address.rsplit(":", 1)
    head = [*lines, f"Host: {api.server.address}", f"Content-Length: {len(body)}", "", ""]

    def ask() -> bytes:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall("\r\n".join(head).encode() + body)
            return connection.recv(65536)

    return await asyncio.to_thread(ask)


async def test_a_response_comes_with_its_body(api: Api):
    for _ in range(20):  # two writes are sometimes read as one
        answer = await first_segment(
            api,
            "POST /graphql HTTP/1.1",
            f"Authorization: Bearer {api.token}",
            "Content-Type: application/json",
            body=QUERY,
        )
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b'{"data":{"__typename":"Query"}' in answer


async def test_an_answer_without_a_body_arrives(api: Api):
    answer = await first_segment(api, "POST /nothing HTTP/1.1", "Expect: 100-continue", body=b"{}")
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")

    answer = await first_segment(api, "HEAD /healthz HTTP/1.1")
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.endswith(b"\r\n\r\n")
