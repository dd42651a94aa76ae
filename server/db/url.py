"""One shape of database URL for both drivers, one or many servers in it, and never a password in a message."""

from urllib.parse import parse_qsl, urlencode

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from server.errors import StartupProblem

SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")


def driver_url(url: str) -> str:
    """The URL as asyncpg wants it. Refuses what is not PostgreSQL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise StartupProblem("DATABASE_URL must start with postgresql://")
    return f"postgresql://{rest}"


def each_server(url: str) -> list[str]:
    """One URL for each server of a URL, which may name several: `one:5432,two:5432`, or `?host=one&host=two`."""
    whole = driver_url(url)
    rest, _, query = whole.removeprefix("postgresql://").partition("?")
    authority, slash, name = rest.partition("/")
    who, at, servers = authority.rpartition("@")
    options = parse_qsl(query, keep_blank_values=True)
    named = [server for key, value in options if key == "host" for server in value.split(",")]
    ports = [port for key, value in options if key == "port" for port in value.split(",")]
    if not servers and named and not any(server.startswith("/") for server in named):
        options = [(key, value) for key, value in options if key not in ("host", "port")]
        servers = ",".join(_with_port(server, ports, place) for place, server in enumerate(named))
    if "," not in servers and not named:
        return [whole]
    asked = f"?{urlencode(options)}" if options else ""
    return [f"postgresql://{who}{at}{server}{slash}{name}{asked}" for server in servers.split(",")]


def shown(url: str) -> str:
    """The URL for people: its password is hidden."""
    try:
        urls = each_server(url)
        shown = [make_url(each).render_as_string(hide_password=True) for each in urls]
        hosts = [each.partition("?")[0].rpartition("@")[2].partition("/")[0] for each in urls]
        return shown[0].replace(hosts[0], ",".join(hosts), 1) if len(urls) > 1 else shown[0]
    except (ArgumentError, ValueError):
        return "the database"


def _with_port(server: str, ports: list[str], place: int) -> str:
    """One port for all of them, or one for each."""
    if not ports or ":" in server.rpartition("]")[2]:
        return server
    return f"{server}:{ports[place] if place < len(ports) else ports[-1]}"
