"""Which server to talk to: arguments, environment, a stored context, or the `pilotlight up` of this folder."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pilotlight_client.errors import NotConfigured

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_FILE = "server.json"  # written by `pilotlight up` into its home


@dataclass(frozen=True)
class Server:
    """A server's GraphQL address and the token to use there."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


def find_server(url: str | None = None, token: str | None = None) -> Server:
    """What was given, else PILOTLIGHT_URL and PILOTLIGHT_TOKEN, else the current context, else a local server."""
    url = url or os.environ.get("PILOTLIGHT_URL") or None
    token = token or os.environ.get("PILOTLIGHT_TOKEN") or None
    if url is not None:
        if token is None:
            raise NotConfigured("PILOTLIGHT_URL is set, but there is no token: set PILOTLIGHT_TOKEN")
        return Server(graphql_url(url), token)
    found = _context() or _local()
    if found is None:
        raise NotConfigured(
            "no server is known: set PILOTLIGHT_URL and PILOTLIGHT_TOKEN, add a context with `pilotlight context add`, "
            "or start one in this folder with `pilotlight up`"
        )
    return Server(found.url, token or found.token)


def graphql_url(url: str) -> str:
    """The address with the path /graphql, which may be left out."""
    stripped = url.strip().rstrip("/")
    parts = urlsplit(stripped)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotConfigured(f"{url!r} is not the address of a server; write https://pilotlight.example.com")
    return stripped if stripped.endswith("/graphql") else f"{stripped}/graphql"


def config_file() -> Path:
    """Where contexts are stored; only its owner can read it."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "pilotlight" / "contexts.json"


def read_contexts() -> dict[str, Any]:
    """`current`, the name of a context, and `contexts`, their URLs and tokens by name."""
    try:
        stored: dict[str, Any] = json.loads(config_file().read_text())
    except FileNotFoundError:
        stored = {}
    except ValueError as error:
        raise NotConfigured(f"{config_file()} is not JSON: {error}") from None
    return {"current": stored.get("current"), "contexts": stored.get("contexts", {})}


def _context() -> Server | None:
    stored = read_contexts()
    name = os.environ.get("PILOTLIGHT_CONTEXT") or stored["current"]
    if name is None:
        return None
    context = stored["contexts"].get(name)
    if context is None:
        raise NotConfigured(f"there is no context {name!r} in {config_file()}")
    return Server(graphql_url(context["url"]), context["token"])


def _local() -> Server | None:
    """The server that runs on the home of this folder, or of a folder above it."""
    home = os.environ.get("PILOTLIGHT_HOME")
    folders = (
        [Path(home).expanduser()] if home else [each / ".pilotlight" for each in [Path.cwd(), *Path.cwd().parents]]
    )
    for folder in folders:
        try:
            stored: dict[str, str] = json.loads((folder / LOCAL_FILE).read_text())
        except (OSError, ValueError):
            continue
        # `pilotlight up` writes the file on loopback only. A file that came with a folder must not collect a token.
        if urlsplit(stored["graphqlUrl"]).hostname in LOOPBACK:
            return Server(stored["graphqlUrl"], stored["token"])
    return None
