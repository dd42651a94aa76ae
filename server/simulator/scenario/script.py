"""A scripted day: calls of the control API at simulated times, read from a TOML file."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from server.simulator.requests import JsonObject

# Of a call that is repeated: enough for a month of minutes.
TIMES_MAX = 50_000
LENGTH = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
SECONDS = (86400, 3600, 60, 1)
FIELDS = frozenset({"at", "call", "body", "instances", "every", "times"})
PLACE = "{id}"


class BadScenario(ValueError):
    """One sentence that names the step."""


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One call. With `instances`, once for each instance whose name matches, with its id for {id} in path and body."""

    at: float
    method: str
    path: str
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    instances: str | None = None

    def body_for(self, instance_id: str) -> JsonObject:
        return {name: instance_id if value == PLACE else value for name, value in self.body.items()}

    def matches(self, name: str) -> bool:
        return self.instances is not None and fnmatchcase(name, self.instances)


def read_scenario(path: Path, known: Collection[tuple[str, str]]) -> tuple[ScenarioStep, ...]:
    """The steps in the order of their times. `known` are the method and path of every call. Raises BadScenario."""
    try:
        parsed = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadScenario(f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadScenario(f"{path} is not TOML: {error}") from None
    steps = parsed.get("step")
    if parsed.keys() != {"step"} or not isinstance(steps, list):
        raise BadScenario(f"{path} must have [[step]] tables, and nothing else")
    found: list[ScenarioStep] = []
    for number, raw in enumerate(cast("list[object]", steps), start=1):
        try:
            found.extend(_steps(raw, known))
        except BadScenario as error:
            raise BadScenario(f"{path}, step {number}: {error}") from None
    return tuple(sorted(found, key=lambda step: step.at))


def parse_length(value: object) -> float:
    """Simulated seconds of 90, 1.5, "90s", "1h30m" or "2d"."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    parts = LENGTH.fullmatch(value) if isinstance(value, str) else None
    if parts is None or not any(parts.groups()):
        raise BadScenario(f"{value!r} is not a length of time such as 90s or 1h30m")
    return float(sum(int(part or 0) * unit for part, unit in zip(parts.groups(), SECONDS, strict=True)))


def _steps(raw: object, known: Collection[tuple[str, str]]) -> Iterator[ScenarioStep]:
    if not isinstance(raw, dict):
        raise BadScenario("it must be a table")
    step = cast(JsonObject, raw)
    unknown = sorted(step.keys() - FIELDS)
    if unknown:
        raise BadScenario(f"unknown field {unknown[0]}; there are {', '.join(sorted(FIELDS))}")
    method, _, path = str(step.get("call", "")).partition(" ")
    if (method, path) not in known:
        raise BadScenario(f"there is no call {step.get('call')!r}; see docs/simulator.md")
    body, instances = step.get("body", {}), step.get("instances")
    if not isinstance(body, dict):
        raise BadScenario("body must be a table")
    if not isinstance(instances, str | None):
        raise BadScenario("instances must be a pattern of names, such as trainer-*")
    needs_instance = PLACE in path or PLACE in cast(JsonObject, body).values()
    if needs_instance != (instances is not None):
        raise BadScenario("give `instances` if the path or the body has {id}, and only then")
    times, at = step.get("times", 1), parse_length(step.get("at", 0))
    if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= TIMES_MAX:
        raise BadScenario(f"times must be 1 to {TIMES_MAX}")
    if (times > 1) != ("every" in step):
        raise BadScenario("`every` and `times` belong together")
    every = parse_length(step.get("every", 0))
    for number in range(times):
        yield ScenarioStep(at + number * every, method, path, cast(JsonObject, body), instances)
