"""`-f FILE`: fields of the input by their names in the schema. Values may be written as in the options."""

import difflib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, cast

import typer

from server.cli.user import values


def read_fields(file: Path) -> dict[str, Any]:
    """The arguments of `create`; an unknown one is refused with the nearest name, one below another by the server."""
    import yaml
    from pilotlight_client.encoding import camel
    from pilotlight_client.inputs import CreateArguments

    try:
        found = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise typer.BadParameter(f"{file} can't be read: {error}") from None
    if not isinstance(found, dict) or not found:
        raise typer.BadParameter(f"{file} has no fields")
    known = {camel(name): name for name in CreateArguments.__annotations__} | {"product": "product"}
    given: dict[str, Any] = {}
    for name, value in cast("dict[Any, Any]", found).items():
        field = known.get(camel(str(name)))
        if field is None:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise typer.BadParameter(f"{file}: there is no field {name!r}{hint}")
        try:
            given[field] = _value(camel(field), value)
        except typer.BadParameter as problem:
            raise typer.BadParameter(f"{file}: {name}: {problem}") from None
    return given


def _value(name: str, given: Any) -> Any:
    """What the client takes for the field, and for those below it."""
    if isinstance(given, date):  # YAML's times; without a time zone they are local, as in the options
        return values.time_of(given.isoformat())
    if isinstance(given, dict):
        below = cast("dict[Any, Any]", given)
        if name in ("env", "labels"):  # YAML reads `DEBUG: 1` as a number
            return {str(key): str(value) for key, value in below.items()}
        return {str(key): _value(str(key), value) for key, value in below.items()}
    if isinstance(given, list):
        return [_value(f"{name}[]", each) for each in cast("list[Any]", given)]
    convert = CONVERT.get(name)
    return given if convert is None or given is None else convert(str(given))


LENGTHS = (
    *("delay", "deleteAfterStopped", "drain", "for", "giveUpAfter", "grace", "heartbeat", "interval", "maxDuration"),
    *("maxWait", "readyTimeout", "timeout", "warnBefore", "window"),
)
CONVERT: dict[str, Callable[[str], Any]] = {
    "maxHourlyPrice": values.price,
    "ports[]": values.port,
    "deadline": values.time_of,
    "until": values.time_of,
    **dict.fromkeys(LENGTHS, values.duration),
}
