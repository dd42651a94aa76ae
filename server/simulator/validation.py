"""Reads one field of a JSON body, or refuses it like the provider."""

import re
from typing import cast

from server.simulator.requests import JsonObject, bad_param

# Clients send numbers as numbers and as strings.
DIGITS = re.compile(r"-?[0-9]{1,18}")


def text(body: JsonObject, name: str, *, least: int = 0, most: int = 255, default: str = "") -> str:
    """A string of bounded length; numbers are accepted, because clients send ids both ways."""
    value = body.get(name)
    if value is None:
        value = default
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise bad_param(f"{name} must be a string", name)
    if not least <= len(value) <= most:
        raise bad_param(f"{name} must have {least} to {most} characters", name)
    return value


def number(body: JsonObject, name: str, *, least: int, most: int, default: int | None = None) -> int:
    value = body.get(name)
    if value is None:
        if default is None:
            raise bad_param(f"{name} is required", name)
        return default
    if isinstance(value, str) and DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_param(f"{name} must be an integer", name)
    if not least <= value <= most:
        raise bad_param(f"{name} must be between {least} and {most}", name)
    return value


def flag(body: JsonObject, name: str, *, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_param(f"{name} must be a boolean", name)
    return value


def choice(body: JsonObject, name: str, allowed: tuple[str, ...], *, default: str | None = None) -> str:
    value = body.get(name)
    if value in (None, ""):
        if default is None:
            raise bad_param(f"{name} is required", name)
        return default
    if value not in allowed:
        raise bad_param(f"{name} must be one of {', '.join(allowed)}", name)
    return cast(str, value)


def objects(body: JsonObject, name: str, *, most: int) -> list[JsonObject]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad_param(f"{name} must be a list", name)
    items = cast(list[object], value)
    if len(items) > most:
        raise bad_param(f"{name} can have at most {most} entries", name)
    for item in items:
        if not isinstance(item, dict):
            raise bad_param(f"{name} must be a list of objects", name)
    return cast(list[JsonObject], items)


def envs(body: JsonObject, *, most: int = 100) -> list[tuple[str, str]]:
    return [
        (text(item, "key", least=1, most=511), text(item, "value", most=4095))
        for item in objects(body, "envs", most=most)
    ]


# The container's own agent listens on these.
RESERVED_PORTS = frozenset({2222, 2223, 2224})


def port_number(value: object, name: str) -> int:
    if isinstance(value, str) and DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise bad_param(f"{name}: a port must be between 1 and 65535", name)
    if value in RESERVED_PORTS:
        raise bad_param(f"{name}: port {value} is reserved", name)
    return value


def port_type(value: object, name: str) -> str:
    if value not in ("http", "tcp"):
        raise bad_param(f"{name}: a port's type must be http or tcp", name)
    return cast(str, value)


def port_string(body: JsonObject, name: str = "ports") -> list[tuple[int, str]]:
    """The ports of a create request: "8888/http,22/tcp"."""
    value = body.get(name)
    if value is None or value == "":
        return []
    if not isinstance(value, str):
        raise bad_param(f"{name} must be a string like 8888/http,22/tcp", name)
    ports: list[tuple[int, str]] = []
    for part in value.split(","):
        digits, slash, kind = part.strip().partition("/")
        if not slash:
            raise bad_param(f"{name} must be a string like 8888/http,22/tcp", name)
        ports.append((port_number(digits, name), port_type(kind, name)))
    return distinct(ports, name)


def distinct(ports: list[tuple[int, str]], name: str) -> list[tuple[int, str]]:
    if len({port for port, _ in ports}) != len(ports):
        raise bad_param(f"{name}: a port is given twice", name)
    return ports


def inner(body: JsonObject, name: str) -> JsonObject | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise bad_param(f"{name} must be an object", name)
    return cast(JsonObject, value)


def texts(body: JsonObject, name: str, *, least: int, most: int) -> list[str]:
    value = body.get(name)
    items = cast(list[object], value) if isinstance(value, list) else []
    if not least <= len(items) <= most or not all(isinstance(item, str) for item in items):
        raise bad_param(f"{name} must be a list of {least} to {most} strings", name)
    return cast(list[str], items)
