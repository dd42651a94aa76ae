"""How an instance is checked: its own health check settings, with the server's defaults."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, ClassVar

from server.config import Settings
from server.errors import Problem

TIMEOUT_RANGE = (1.0, 300.0)  # seconds
RETRIES_RANGE = (0, 10)
DELAY_RANGE = (0.1, 30.0)  # seconds
MAX_WAIT_RANGE = (30.0, 1800.0)  # seconds
PATH_LENGTH_MAX = 1024
INTERVAL_RANGE = (10.0, 3600.0)  # seconds; 0 is off
THRESHOLD_RANGE = (1, 10)
STATUSES_MAX = 20
RETRY_DELAY_MAX = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class HealthCheckDraft:
    """Health check settings of a request; None means the server's default. Durations are in seconds."""

    FIRST_FIELDS: ClassVar = frozenset(
        ["timeout", "retries", "delay", "max_wait", "path", "expected_statuses", "target_port"]
    )
    timeout: float | None = None
    retries: int | None = None
    delay: float | None = None
    max_wait: float | None = None
    path: str | None = None
    expected_statuses: tuple[int, ...] | None = None
    target_port: int | None = None
    interval: float | None = None
    failure_threshold: int | None = None
    success_threshold: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As stored in the instance's row: only what is set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if name == "expected_statuses" else value
            for name, value in values.items()
            if value is not None
        }

    def problems(self, path: tuple[str, ...]) -> Iterator[Problem]:
        yield from _range_problem(self.timeout, TIMEOUT_RANGE, (*path, "timeout"))
        yield from _range_problem(self.retries, RETRIES_RANGE, (*path, "retries"))
        yield from _range_problem(self.delay, DELAY_RANGE, (*path, "delay"))
        yield from _range_problem(self.max_wait, MAX_WAIT_RANGE, (*path, "maxWait"))
        yield from _range_problem(self.target_port, (1, 65535), (*path, "targetPort"))
        if self.interval != 0:
            yield from _range_problem(self.interval, INTERVAL_RANGE, (*path, "interval"), instead="0 or ")
        yield from _range_problem(self.failure_threshold, THRESHOLD_RANGE, (*path, "failureThreshold"))
        yield from _range_problem(self.success_threshold, THRESHOLD_RANGE, (*path, "successThreshold"))
        if self.path is not None and not _is_path(self.path):
            limits = f"at most {PATH_LENGTH_MAX} printable ASCII characters, no spaces, no # and no backslash"
            message = f"A path begins with one / and has {limits}."
            yield Problem("INVALID_HEALTH_PATH", message, (*path, "path"))
        statuses = self.expected_statuses
        if statuses is not None and not (
            1 <= len(statuses) <= STATUSES_MAX and all(100 <= each <= 599 for each in statuses)
        ):
            message = f"Name 1 to {STATUSES_MAX} statuses between 100 and 599."
            yield Problem("INVALID_HEALTH_CHECK", message, (*path, "expectedStatuses"))


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """All settings of a check. Without expected statuses any status from 200 to 399 is healthy."""

    timeout: timedelta
    retries: int
    delay: timedelta
    max_wait: timedelta
    interval: timedelta = timedelta(0)  # of the probes while READY; 0 is off
    failure_threshold: int = 1
    success_threshold: int = 1
    path: str | None = None
    expected_statuses: frozenset[int] = frozenset()
    target_port: int | None = None

    def with_stored(self, stored: Mapping[str, Any]) -> "CheckPlan":
        """This plan with the settings of the instance's row."""
        return CheckPlan(
            timeout=_seconds(stored.get("timeout"), self.timeout),
            retries=int(stored.get("retries", self.retries)),
            delay=_seconds(stored.get("delay"), self.delay),
            max_wait=_seconds(stored.get("max_wait"), self.max_wait),
            interval=_seconds(stored.get("interval"), self.interval),
            failure_threshold=int(stored.get("failure_threshold", self.failure_threshold)),
            success_threshold=int(stored.get("success_threshold", self.success_threshold)),
            path=stored.get("path"),
            expected_statuses=frozenset(stored.get("expected_statuses") or ()),
            target_port=stored.get("target_port"),
        )

    def expects(self, status: int) -> bool:
        return status in self.expected_statuses if self.expected_statuses else 200 <= status < 400

    def retry_delay(self, attempts: int) -> timedelta:
        """Delay after that many failed probes: doubling, with jitter."""
        full = min(self.delay * 2 ** min(max(attempts - 1, 0), 16), RETRY_DELAY_MAX)
        return full * random.uniform(0.75, 1.25)


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One endpoint to probe; `address` is None until the provider has assigned one."""

    port: int
    type: str
    address: str | None


def probe_targets(
    plan: CheckPlan, ports: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]
) -> list[ProbeTarget]:
    """The endpoints to probe; none if no port is http and no target port is set.

    Requested ports without an address are included: the provider may assign it late.
    """
    known: dict[int, ProbeTarget] = {}
    for port in ports:
        known[int(port["port"])] = ProbeTarget(int(port["port"]), str(port["type"]), None)
    for endpoint in endpoints:
        number = int(endpoint["port"])
        known[number] = ProbeTarget(number, str(endpoint["type"]), str(endpoint["address"]))
    if plan.target_port is not None:
        return [known[plan.target_port]] if plan.target_port in known else []
    targets = sorted(known.values(), key=lambda target: target.port)
    return targets if any(target.type == "http" for target in targets) else []


def needs_check(
    stored: Mapping[str, Any], ports: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether the instance must pass a health check before it is READY."""
    return stored.get("target_port") is not None or any(each["type"] == "http" for each in (*ports, *endpoints))


def _range_problem(
    value: float | None, bounds: tuple[float, float], path: tuple[str, ...], *, instead: str = ""
) -> Iterator[Problem]:
    low, high = bounds
    if value is not None and not low <= value <= high:
        yield Problem("INVALID_HEALTH_CHECK", f"It must be {instead}{low:g} to {high:g}.", path)


def _is_path(path: str) -> bool:
    """Two slashes would begin a reference to another host, and some servers read a backslash as a slash."""
    return (
        path.startswith("/")
        and not path.startswith("//")
        and len(path) <= PATH_LENGTH_MAX
        and all("!" <= each <= "~" and each not in "#\\" for each in path)
    )


def _seconds(value: Any, default: timedelta) -> timedelta:
    return default if value is None else timedelta(seconds=float(value))


def default_plan(settings: Settings) -> CheckPlan:
    """For instances without health check settings."""
    return CheckPlan(
        timeout=settings.health_check_timeout,
        retries=settings.health_check_retries,
        delay=settings.health_check_delay,
        max_wait=settings.health_check_max_wait,
        interval=settings.health_check_interval,
        failure_threshold=settings.health_check_failure_threshold,
        success_threshold=settings.health_check_success_threshold,
    )
