"""One shape of database URL for both drivers, and never a password in a message."""

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


def shown(url: str) -> str:
    """The URL for people: its password is hidden."""
    try:
        return make_url(driver_url(url)).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return "the database"
