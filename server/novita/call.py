"""One call to the provider, as a value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

PREFIX = "/gpu-instance/openapi/v1"
METRICS_PREFIX = "/openapi/v1/metrics"  # the one call that lives elsewhere on the same host


@dataclass(slots=True)  # not frozen: one is made for every call, and frozen ones take four times as long to make
class Call:
    """`is_repeatable` says that doing it twice is no worse than once, so that it may be tried again after a failure
    that leaves open whether it was done. Nothing that makes or bills something is."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    is_repeatable: bool = False
    prefix: str = PREFIX
    secrets: tuple[SecretStr, ...] = ()  # never to be seen in an error, should the provider echo them
    asked_at: float | None = None  # by the client's ticks; the moment of the call unless it was decided on before
    route: str = field(init=False)

    def __post_init__(self) -> None:
        # Metrics share a path with instances, below another prefix.
        self.route = f"{self.method} {self.path if self.prefix == PREFIX else self.prefix + self.path}"


def get(path: str, *, prefix: str = PREFIX, **query: str | int | tuple[str, ...] | None) -> Call:
    """A read; a parameter that is None is left out, a tuple is sent as a repeated one."""
    sent: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, tuple):
            sent.extend((name, each) for each in value)
        elif value is not None:
            sent.append((name, str(value)))
    return Call("GET", path, query=sent, is_repeatable=True, prefix=prefix)


def post(
    path: str,
    body: Mapping[str, Any],
    *,
    is_repeatable: bool,
    secrets: tuple[SecretStr, ...] = (),
    asked_at: float | None = None,
) -> Call:
    """A change."""
    return Call("POST", path, body=body, is_repeatable=is_repeatable, secrets=secrets, asked_at=asked_at)
