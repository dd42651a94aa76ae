"""How an instance is checked: what its owner said, and the server's own word where the owner said nothing."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from server.errors import Problem

TIMEOUT = (1.0, 300.0)  # seconds
RETRIES = (0, 10)
DELAY = (0.1, 30.0)  # seconds
MAX_WAIT = (30.0, 1800.0)  # seconds
LONGEST_PATH = 1024
MOST_STATUSES = 20
LONGEST_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class HealthCheckDraft:
    """What a caller asks for; `None` leaves it to the server. Durations are in seconds."""

    timeout: float | None = None
    retries: int | None = None
    delay: float | None = None
    max_wait: float | None = None
    path: str | None = None
    expected_statuses: tuple[int, ...] | None = None
    target_port: int | None = None

    def stored(self) -> dict[str, Any]:
        """As the instance's row keeps it: only what was said."""
        statuses = None if self.expected_statuses is None else list(self.expected_statuses)
        values: dict[str, Any] = {**asdict(self), "expected_statuses": statuses}
        return {name: value for name, value in values.items() if value is not None}

    def problems(self, path: tuple[str, ...]) -> Iterator[Problem]:
        yield from _outside(self.timeout, TIMEOUT, (*path, "timeout"))
        yield from _outside(self.retries, RETRIES, (*path, "retries"))
        yield from _outside(self.delay, DELAY, (*path, "delay"))
        yield from _outside(self.max_wait, MAX_WAIT, (*path, "maxWait"))
        yield from _outside(self.target_port, (1, 65535), (*path, "targetPort"))
        if self.path is not None and not _is_path(self.path):
            message = (
                f"A path begins with / and has at most {LONGEST_PATH} printable ASCII characters without spaces and #."
            )
            yield Problem("INVALID_HEALTH_CHECK", message, (*path, "path"))
        statuses = self.expected_statuses
        if statuses is not None and not (
            1 <= len(statuses) <= MOST_STATUSES and all(100 <= each <= 599 for each in statuses)
        ):
            message = f"Name 1 to {MOST_STATUSES} statuses between 100 and 599."
            yield Problem("INVALID_HEALTH_CHECK", message, (*path, "expectedStatuses"))


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a check needs to know. No expected statuses: any answer below 400 will do."""

    timeout: timedelta
    retries: int
    delay: timedelta
    max_wait: timedelta
    path: str | None = None
    expected_statuses: frozenset[int] = frozenset()
    target_port: int | None = None

    def with_stored(self, stored: Mapping[str, Any]) -> "Plan":
        """This one as the server's own, with what the instance's row says in its place."""
        return Plan(
            timeout=_seconds(stored.get("timeout")) or self.timeout,
            retries=self.retries if stored.get("retries") is None else int(stored["retries"]),
            delay=_seconds(stored.get("delay")) or self.delay,
            max_wait=_seconds(stored.get("max_wait")) or self.max_wait,
            path=stored.get("path"),
            expected_statuses=frozenset(stored.get("expected_statuses") or ()),
            target_port=stored.get("target_port"),
        )

    def expects(self, status: int) -> bool:
        return status in self.expected_statuses if self.expected_statuses else 200 <= status < 400

    def pause(self, attempts: int) -> timedelta:
        """How long after that many probes in vain: doubling, and never quite the same for two instances."""
        full = min(self.delay * 2 ** min(max(attempts - 1, 0), 16), LONGEST_PAUSE)
        return full * random.uniform(0.75, 1.25)


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint to probe. Without an address there is nothing to connect to yet."""

    port: int
    type: str
    address: str | None


def targets(plan: Plan, ports: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]) -> list[Target]:
    """What is to be probed; nothing where no port speaks http and none was named.

    Ports that were asked for and have no address yet count: the provider may be late with it.
    """
    known: dict[int, Target] = {}
    for port in ports:
        known[int(port["port"])] = Target(int(port["port"]), str(port["type"]), None)
    for endpoint in endpoints:
        number = int(endpoint["port"])
        known[number] = Target(number, str(endpoint["type"]), str(endpoint["address"]))
    if plan.target_port is not None:
        return [known[plan.target_port]] if plan.target_port in known else []
    found = sorted(known.values(), key=lambda target: target.port)
    return found if any(target.type == "http" for target in found) else []


def wants_check(
    stored: Mapping[str, Any], ports: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether there is anything to prove before it is READY."""
    return stored.get("target_port") is not None or any(each["type"] == "http" for each in (*ports, *endpoints))


def _outside(value: float | None, bounds: tuple[float, float], path: tuple[str, ...]) -> Iterator[Problem]:
    low, high = bounds
    if value is not None and not low <= value <= high:
        yield Problem("INVALID_HEALTH_CHECK", f"It must be {low:g} to {high:g}.", path)


def _is_path(path: str) -> bool:
    return (
        path.startswith("/") and len(path) <= LONGEST_PATH and all("!" <= each <= "~" and each != "#" for each in path)
    )


def _seconds(value: Any) -> timedelta | None:
    return None if value is None else timedelta(seconds=float(value))
