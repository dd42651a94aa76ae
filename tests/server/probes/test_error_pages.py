"""Error pages are recognised by where they mention an error, and healthy pages may mention one."""

import time

import pytest

from server.probes.error_pages import PHRASES, find_error_phrase

LONG = "<p>All about our service, at length and in good health.</p>" * 200


def html(title: str = "Welcome", heading: str = "Hello", rest: str = "") -> bytes:
    return (
        f"<!doctype html><html><head><title>{title}</title></head><body><h1>{heading}</h1>{rest}</body></html>".encode()
    )


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_phrase_is_found_in_a_title_a_heading_and_a_short_body(phrase: str):
    assert find_error_phrase(html(title=phrase.title()), "text/html") is not None
    assert find_error_phrase(html(heading=f"503 {phrase.upper()}"), "text/html; charset=utf-8") is not None
    assert find_error_phrase(phrase.encode(), "text/plain") is not None
    assert find_error_phrase(f'{{"error": "{phrase}"}}'.encode(), "application/json") is not None


@pytest.mark.parametrize(
    "body",
    [
        b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>"
        b"\r\n<hr><center>nginx/1.25.3</center>\r\n</body>\r\n</html>\r\n",
        html(title="503 Service Temporarily Unavailable"),
        html(title="example.com | 502: Bad gateway", heading="Bad gateway", rest=LONG),  # as a large CDN has it
        html(title="Error 500 - Internal Server Error", rest=LONG),
        html(title="Application Error", heading="", rest="<iframe src='//error-pages.example'></iframe>"),
        html(title="Site", heading="We are in maintenance mode", rest="<p>Back soon.</p>"),
        b"upstream error",
        b"  Proxy Error: the proxy server received an invalid response\n",
        b'{"message": "Service Unavailable", "request": 1}',
        b'{"error": {"code": 502, "message": "Bad Gateway"}}',
        b"<h1>Gateway Time-out</h1>",
    ],
)
def test_pages_of_gateways_are_errors(body: bytes):
    assert find_error_phrase(body, "") is not None


@pytest.mark.parametrize(
    ("body", "type"),
    [
        (b"", "text/html"),
        (b"ok", "text/plain"),
        (html(), "text/html"),
        (
            html(title="How to fix 502 Bad Gateway in nginx", heading="502 Bad Gateway explained", rest=LONG),
            "text/html",
        ),
        (html(rest=LONG + "<p>502 Bad Gateway, Service Unavailable, Internal Server Error</p>"), "text/html"),
        (html(rest=LONG + "<script>const texts = {e: 'Internal Server Error'}</script>"), "text/html"),
        (html(rest="<script>const texts = {e: 'Internal Server Error'}</script>"), "text/html"),
        (html(rest="<!-- application error handler -->"), "text/html"),
        (b'{"status": "ok", "checks": {"maintenance mode": false, "note": "no bad gateway seen"}}', "application/json"),
        (b'["bad gateway"]', "application/json"),
        (b"no application errors since Monday", "text/plain"),
        (("log line: bad gateway\n" * 100).encode(), "text/plain"),
        (b"\xff\xfe\x00\x01" * 100, "application/octet-stream"),
    ],
)
def test_healthy_answers_that_speak_of_errors_are_healthy(body: bytes, type: str):
    assert find_error_phrase(body, type) is None


@pytest.mark.parametrize(
    "piece", ["<", "<h1>", "<title>", "<!--", "<script>", "</h1", "{", '{"a":', "bad gatewa", "</script "]
)
def test_no_body_takes_long_to_scan(piece: str):
    body = (piece * 65536).encode()[:65536]
    began = time.perf_counter()
    find_error_phrase(body, "text/html")
    find_error_phrase(body, "application/json")
    assert time.perf_counter() - began < 10
