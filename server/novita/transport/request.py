"""A call to the provider's API as a value."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from pydantic import SecretStr

from server.novita.transport.concurrency import CallPriority
from server.novita.transport.json_reader import JsonReader

PREFIX = "/gpu-instance/openapi/v1"
# Calls with another prefix.
METRICS_PREFIX = "/openapi/v1/metrics"
BILLING_PREFIX = "/openapi/v1/billing"
SUBJECT = re.compile(r"instance|template|storage|network(?!storage)|auth|job")


@dataclass(slots=True)  # not frozen: creating a frozen one takes four times as long
class ApiCall:
    """`is_repeatable`: idempotent, so it may be retried when it is unknown whether the first attempt took effect.
    Calls that create or bill something are not."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    is_repeatable: bool = False
    prefix: str = PREFIX
    secrets: tuple[SecretStr, ...] = ()  # removed from error messages, in case the provider echoes them
    asked_at: float | None = None  # by the client's clock; the moment of the call unless it was decided on before
    before_sending: Callable[[], Awaitable[None]] | None = None  # after all waiting, before each attempt
    route: str = field(init=False)

    def __post_init__(self) -> None:
        # Metrics share a path with instances, below another prefix.
        self.route = f"{self.method} {self.path if self.prefix == PREFIX else self.prefix + self.path}"

    @property
    def subject(self) -> str | None:
        """What the call is about, in the word of the provider's messages; None for a create, which names nothing."""
        found = SUBJECT.search(self.path)
        return None if found is None or self.path.endswith("/create") else found[0]


def get(path: str, *, prefix: str = PREFIX, **query: str | int | datetime | tuple[str, ...] | None) -> ApiCall:
    """A read; None parameters are left out, a time is sent in seconds, a tuple as a repeated parameter."""
    sent: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, tuple):
            sent.extend((name, each) for each in value)
        elif value is not None:
            sent.append((name, str(int(value.timestamp()) if isinstance(value, datetime) else value)))
    return ApiCall("GET", path, query=sent, is_repeatable=True, prefix=prefix)


def post(
    path: str,
    body: Mapping[str, Any],
    *,
    is_repeatable: bool,
    secrets: tuple[SecretStr, ...] = (),
    asked_at: float | None = None,
    before_sending: Callable[[], Awaitable[None]] | None = None,
) -> ApiCall:
    """A change."""
    return ApiCall(
        "POST",
        path,
        body=body,
        is_repeatable=is_repeatable,
        secrets=secrets,
        asked_at=asked_at,
        before_sending=before_sending,
    )


T = TypeVar("T")


class ApiTransport(Protocol):
    """Makes calls to the provider's API."""

    async def call(
        self, call: ApiCall, read: Callable[[JsonReader], T], *, priority: CallPriority = CallPriority.USER
    ) -> T: ...

    async def check(self, route: str) -> None: ...


class ApiCalls:
    """A group of API calls that share a transport."""

    _transport: ApiTransport


def ignore_body(_: JsonReader) -> None:
    """For calls whose response body has no information."""
