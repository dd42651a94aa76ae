"""Which requests get the development token with the page, and what is served without a built page."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from server.http import pages
from server.http.pages import PIECE, BuildStatus, Development, Pages
from tests.support.waiting import until

SECRET = "pl_" + "x" * 43


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of one line and one asset, in place of the real one."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><html><head></head><body></body></html>")
    (tmp_path / "assets" / "index-abc.js").write_text("1;" * 1000)
    (tmp_path / "secret.txt").write_text("not for you")
    monkeypatch.setattr(pages, "DASHBOARD", (tmp_path,))
    return tmp_path


@pytest.fixture
async def client(built: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with _client(Pages(Development(token=SECRET), is_loopback=True)) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost:8000", "localhost", "[::1]:8000", "127.0.0.2", "LOCALHOST"]
)
async def test_a_local_request_gets_the_token_with_the_page(client: httpx2.AsyncClient, host: str):
    answer = await client.get("/", headers={"host": host})

    assert f'<script type="application/json" id="pilotlight">{{"token": "{SECRET}"}}</script></head>' in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.example:8000"},
        {"host": "127.0.0.1.example"},
        {"host": "localhost.example"},
        {"host": "192.168.1.5:8000"},
        {"host": ""},
        {"host": "127.0.0.1:8000", "origin": "http://elsewhere.example"},
        {"host": "127.0.0.1:8000", "x-forwarded-for": "203.0.113.7"},
        {"host": "127.0.0.1:8000", "forwarded": "for=203.0.113.7"},
        {"host": "127.0.0.1:8000", "via": "1.1 proxy"},
    ],
)
async def test_no_other_request_gets_the_token(client: httpx2.AsyncClient, headers: dict[str, str]):
    answer = await client.get("/", headers=headers)

    assert answer.status_code == 200
    assert SECRET not in answer.text


async def test_a_server_that_others_can_reach_hands_out_no_token(built: Path):
    async with _client(Pages(Development(token=SECRET), is_loopback=False)) as client:
        answer = await client.get("/", headers={"host": "127.0.0.1:8000"})

    assert SECRET not in answer.text


async def test_a_token_can_not_end_the_element_that_it_is_in(built: Path):
    async with _client(Pages(Development(token="</script><script>alert(1)"), is_loopback=True)) as client:
        answer = await client.get("/", headers={"host": "localhost"})

    assert answer.text.count("</script>") == 1


async def test_the_policy_lets_the_page_load_and_call_nothing_but_its_own_server(client: httpx2.AsyncClient):
    answer = await client.get("/", headers={"host": "localhost:8000"})

    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' "
        "ws://localhost:8000 wss://localhost:8000; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert answer.headers["cache-control"] == "no-store"


async def test_a_name_of_a_host_adds_nothing_else_to_the_policy(client: httpx2.AsyncClient):
    answer = await client.get("/", headers={"host": "x; script-src *"})

    assert "connect-src 'self';" in answer.headers["content-security-policy"]
    assert "*" not in answer.headers["content-security-policy"]


async def test_assets_are_kept_for_ever_and_come_compressed(client: httpx2.AsyncClient):
    answer = await client.get("/assets/index-abc.js", headers={"accept-encoding": "gzip"})
    plain = await client.get("/assets/index-abc.js", headers={"accept-encoding": "identity"})

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.text == plain.text == "1;" * 1000
    assert int(answer.headers["content-length"]) < 100


async def test_a_file_is_read_once_for_all_and_written_as_far_as_each_reads(built: Path):
    """A stranger may ask for the largest file over hundreds of connections and read nothing."""
    size = 4 * 1024 * 1024
    (built / "assets" / "large-abc.js").write_bytes(b"1;" * (size // 2))
    app = Starlette(routes=Pages().routes())
    sent: list[int] = []

    async def read_until_stalled(message: Message) -> None:
        sent.append(len(message.get("body", b"")))
        if len(sent) % 3 == 0:
            await asyncio.Event().wait()

    scope = {
        "type": "http", "method": "GET", "path": "/assets/large-abc.js", "query_string": b"", "headers": [],
        "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    tracemalloc.start()
    waiting: list[asyncio.Task[None]] = []
    try:
        for number in range(20):
            waiting.append(asyncio.create_task(app(dict(scope), _nothing, read_until_stalled)))
            await until(lambda reached=3 * (number + 1): len(sent) == reached)
        assert tracemalloc.get_traced_memory()[0] < 2 * size
    finally:
        tracemalloc.stop()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert 0 < max(sent) <= PIECE


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


@pytest.mark.parametrize("name", ["nothing.js", "..%2fsecret.txt", ".hidden", "%2e%2e/secret.txt"])
async def test_only_assets_are_handed_out(client: httpx2.AsyncClient, name: str):
    answer = await client.get(f"/assets/{name}")

    assert answer.status_code == 404
    assert "not for you" not in answer.text


async def test_without_a_page_the_server_says_how_to_build_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "DASHBOARD", (tmp_path / "nothing",))
    async with _client(Pages()) as client:
        answer = await client.get("/")

    assert answer.status_code == 200
    assert "make web" in answer.text
    assert "http-equiv" not in answer.text


async def test_a_page_that_is_being_built_says_so_and_reloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "DASHBOARD", (tmp_path / "nothing",))
    async with _client(Pages(Development(build_status=lambda: BuildStatus.BUILDING))) as client:
        answer = await client.get("/")

    assert "being built" in answer.text
    assert '<meta http-equiv="refresh" content="2">' in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")


def _client(served: Pages) -> httpx2.AsyncClient:
    app = Starlette(routes=served.routes())
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")
