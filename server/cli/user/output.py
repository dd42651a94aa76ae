"""Results as a table, JSON, YAML or names."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

import typer

from server.cli.user.values import shown_duration


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"


Column = tuple[str, Callable[[Any], str]]
COLORS = {"READY": typer.colors.GREEN, "FAILED": typer.colors.RED, "DELETED": typer.colors.BRIGHT_BLACK}


def chosen(given: Format | None) -> Format:
    """Tables on a terminal, JSON when piped."""
    return given or (Format.TABLE if sys.stdout.isatty() else Format.JSON)


def show(items: Iterable[Any], columns: Sequence[Column], wide: Sequence[Column], format: Format | None) -> None:
    """A list of objects."""
    match chosen(format):
        case Format.JSON:
            typer.echo(json.dumps([plain(item) for item in items], indent=2))
        case Format.JSONL:
            for item in items:
                typer.echo(json.dumps(plain(item)))
        case Format.YAML:
            typer.echo(_yaml([plain(item) for item in items]), nl=False)
        case Format.NAME:
            for item in items:
                typer.echo(_name(item))
        case Format.TABLE:
            _table(list(items), columns)
        case Format.WIDE:
            _table(list(items), [*columns, *wide])


def show_one(item: Any, lines: Sequence[Column], format: Format | None) -> None:
    """One object; as a table, a line for each field that has a value."""
    match chosen(format):
        case Format.JSON:
            typer.echo(json.dumps(plain(item), indent=2))
        case Format.JSONL:
            typer.echo(json.dumps(plain(item)))
        case Format.YAML:
            typer.echo(_yaml(plain(item)), nl=False)
        case Format.NAME:
            typer.echo(_name(item))
        case Format.TABLE | Format.WIDE:
            shown = [(name, read(item)) for name, read in lines]
            width = max(len(name) for name, value in shown if value) + 2
            for name, value in shown:
                if value:
                    typer.echo(f"{name + ':':<{width}}{value}")


def _name(item: Any) -> str:
    return getattr(item, "name", None) or item.id


def plain(value: Any) -> Any:
    """An object of the client as JSON with the schema's names."""
    from pilotlight_client.encoding import camel

    if is_dataclass(value) and not isinstance(value, type):
        return {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.value if isinstance(value, Enum) else value


def age(since: datetime | None) -> str:
    return "" if since is None else shown_duration(datetime.now(UTC) - since)


def until(at: datetime | None) -> str:
    return "" if at is None else shown_duration(at - datetime.now(UTC))


def has_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _table(items: list[Any], columns: Sequence[Column]) -> None:
    rows = [[title for title, _ in columns], *([read(item) for _, read in columns] for item in items)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if has_color():
            cells = [typer.style(cell, fg=COLORS[cell.strip()]) if cell.strip() in COLORS else cell for cell in cells]
        typer.echo("  ".join(cells).rstrip())


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
