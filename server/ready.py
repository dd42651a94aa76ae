"""Telling scripts where everything is, so that they need not guess."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ready:
    """What scripts need to know once everything answers."""

    graphql_url: str
    websocket_url: str
    token: str | None
    simulator_url: str | None
    database_url: str
    pid: int

    def to_json(self) -> str:
        names = {name: _camel(name) for name in asdict(self)}
        return json.dumps({names[name]: value for name, value in asdict(self).items()}, indent=2)


def write_whole(file: Path, content: str) -> None:
    """All of it or nothing, and for nobody else's eyes: there are secrets in it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(handle, "w") as stream:
        stream.write(content)
    Path(name).replace(file)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
