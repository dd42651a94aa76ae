"""No key, password or token appears in a log line, error, repr or traceback, local variables included."""

import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from server.errors import NovitaError
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance, Env, RegistryAuth, TemplateDraft, UpgradeInstance
from server.novita.transport.retry import RetryPolicy
from tests.server.novita.parts import DROP, HANG, Request, answer, client_of, provider, refusal

KEY, PASSWORD, SSH, TOKEN, AUTH = (
    "sk_0f9e8d7c6b5a",
    "registry-pw-4411",
    "ssh-pw-9a8b7c",
    "hf_env-token-2277",
    "robot:image-pw-3388",
)
SECRETS = (KEY, PASSWORD, SSH, TOKEN, AUTH, "image-pw-3388")

INSTANCE = {
    "id": "n1",
    "status": "running",
    "envs": [{"key": "HF_TOKEN", "value": TOKEN}],
    "command": f"serve --token {TOKEN}",
    "connectComponentSSH": {"sshCommand": "ssh -p 1 root@h", "password": SSH, "isRunning": True},
    "connectComponentWebTerminal": {"address": f"https://t?k={SSH}", "username": "u", "password": SSH},
    "connectComponentJupyter": {"address": f"https://j?token={TOKEN}", "port": 8888},
    "connectComponentLog": {"systemLogAddress": f"https://l?sig={TOKEN}"},
}


def echo(status: int, *, as_json: bool = True) -> Callable[[Request], bytes]:
    """A provider that echoes the whole request in its error response."""

    def answer_with_all(request: Request) -> bytes:
        said = f"{request.headers['authorization']} {request.body.decode()}"
        return refusal(status, said, f"what is this: {said}") if as_json else answer(status, said.encode())

    return answer_with_all


def create(client: NovitaClient) -> Awaitable[Any]:
    return client.create_instance(
        CreateInstance(
            name="a",
            product_id="p",
            image="i",
            rootfs_gb=10,
            envs=(Env("HF_TOKEN", TOKEN),),
            image_auth=SecretStr(AUTH),
            command=f"serve --token {TOKEN}",
        )
    )


def upgrade(client: NovitaClient) -> Awaitable[Any]:
    return client.upgrade_instance("n1", UpgradeInstance(image="i", envs=(Env("HF_TOKEN", TOKEN),), command=TOKEN))


def save_auth(client: NovitaClient) -> Awaitable[Any]:
    return client.save_registry_auth(name="r", username="u", password=SecretStr(PASSWORD))


def make_template(client: NovitaClient) -> Awaitable[Any]:
    return client.create_template(TemplateDraft(name="t", image="i", rootfs_gb=10, envs=(Env("HF_TOKEN", TOKEN),)))


def read(client: NovitaClient) -> Awaitable[Any]:
    return client.instance("n1")


def auths(client: NovitaClient) -> Awaitable[Any]:
    return client.registry_auths()


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """All log lines, at every level, including aiohttp's."""
    lines: list[dict[str, Any]] = []

    def keep(_: object, name: str, line: dict[str, Any]) -> dict[str, Any]:
        lines.append({"level": name, **line})
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    yield lines
    structlog.configure(**before)


def seen_in(error: BaseException) -> str:
    """Everything that an error renderer could show, with the local variables of every frame."""
    parts = [str(error), repr(error), repr(error.args), repr(vars(error))]
    parts += traceback.format_exception(error)
    parts += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    with_locals = structlog.tracebacks.ExceptionDictTransformer(show_locals=True, locals_max_string=10_000)
    parts.append(repr(with_locals((type(error), error, error.__traceback__))))
    # Chained exceptions count, also suppressed ones: some renderers show them.
    assert error.__cause__ is None
    assert error.__context__ is None
    return "\n".join(parts)


def assert_clean(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text


@pytest.mark.parametrize("call", [create, upgrade, save_auth, make_template, read, auths])
@pytest.mark.parametrize(
    "failing",
    [
        echo(401),
        echo(400),
        echo(500),
        echo(429),
        echo(502, as_json=False),
        answer(200, b'{"data":[{"id":"1","password":"' + PASSWORD.encode()),
        answer(200, {"data": [{"password": PASSWORD}], **{k: v for k, v in INSTANCE.items() if k != "id"}}),
        answer(500, b'{"connectComponentSSH":{"password":"' + SSH.encode()),
        b"HTTP/1.1 200 " + KEY.encode() + b"\r\nContent-Length: x\r\n\r\n",
        b"\x00\x01 " + KEY.encode() + b"\r\n\r\n",
        DROP,
        HANG,
    ],
)
async def test_no_failure_shows_a_secret(
    failing: bytes | Callable[[Request], bytes],
    call: Callable[[NovitaClient], Awaitable[Any]],
    logged: list[dict[str, Any]],
    caplog: Any,
    capfd: Any,
):
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {"retry": RetryPolicy(attempts=2, random=lambda: 1.0)}
    if failing == HANG:
        options["request_timeout"] = timedelta(seconds=0.1)
    async with provider(failing) as scripted, client_of(scripted.url, api_key=SecretStr(KEY), **options) as client:
        error = await _error_of(call(client))
        assert_clean(repr(client) + repr(vars(client)) + str(client.snapshot()))
    if error is not None:
        assert_clean(seen_in(error))
    assert logged
    assert_clean(repr(logged))
    assert_clean(caplog.text)
    assert_clean("".join(capfd.readouterr()))


async def _error_of(call: Awaitable[Any]) -> NovitaError | None:
    try:
        await call
    except NovitaError as error:
        return error
    return None  # a save with status 200 is a success, whatever the body says


async def test_no_value_shows_a_secret():
    async with provider(answer(200, INSTANCE)) as scripted, client_of(scripted.url, api_key=SecretStr(KEY)) as client:
        instance = await client.instance("n1")
    assert instance.ssh is not None
    assert instance.ssh.password == SecretStr(SSH)
    assert instance.jupyter is not None
    assert_clean(repr(instance) + str(instance))
    assert "password" not in RegistryAuth.__dataclass_fields__


async def test_connections_that_do_not_come_about_show_no_secret(logged: list[dict[str, Any]]):
    async with client_of("http://127.0.0.1:9", api_key=SecretStr(KEY)) as client:
        error = await _error_of(read(client))
    assert error is not None
    assert_clean(seen_in(error))
    assert [line["event"] for line in logged].count("novita call is tried again") == 4
    assert_clean(repr(logged))


async def test_a_call_is_one_debug_line_with_route_status_and_duration(logged: list[dict[str, Any]]):
    async with provider(answer(200, INSTANCE)) as scripted, client_of(scripted.url) as client:
        await client.instance("n1")
    (line,) = logged
    assert line.pop("duration_ms") >= 0
    assert line == {"level": "debug", "event": "novita call", "route": "GET /gpu/instance", "status": 200, "attempt": 1}
