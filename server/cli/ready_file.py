"""The --ready-file: addresses and token as JSON, for scripts."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pydantic.alias_generators import to_camel


@dataclass(frozen=True, slots=True)
class Ready:
    """The contents of the ready file."""

    graphql_url: str
    websocket_url: str
    token: str | None
    simulator_url: str | None
    database_url: str
    pid: int

    @classmethod
    def at(cls, address: str, database_url: str, *, token: str | None = None, simulator_url: str | None = None) -> Self:
        """Of this process, which listens on the address."""
        graphql_url, websocket_url = f"http://{address}/graphql", f"ws://{address}/graphql"
        return cls(graphql_url, websocket_url, token, simulator_url, database_url, os.getpid())

    def to_json(self) -> str:
        return json.dumps({to_camel(name): value for name, value in asdict(self).items()}, indent=2)


def write_whole(file: Path, content: str) -> None:
    """Write a file atomically and readable by its owner only: it contains secrets."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(handle, "w") as stream:
        stream.write(content)
    Path(name).replace(file)
