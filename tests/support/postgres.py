"""The PostgreSQL server of a test run: TEST_DATABASE_URL, else what TEST_DATABASE names, else the embedded one."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from server.db.embedded.server import EmbeddedPostgres

IMAGE = "postgres:17"
# A test database need not survive a crash; two test processes with their own pools need more than 100 connections.
COMMAND = "postgres -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=400"


class Kind(StrEnum):
    GIVEN = "given"
    CONTAINER = "container"
    EMBEDDED = "embedded"


class UnusableServer(Exception):
    """The chosen server can't be used; the message says why and what to do."""


def kind_of(environ: Mapping[str, str]) -> Kind:
    """Which server the environment chooses. A URL wins, so that test processes share the container of the first."""
    if environ.get("TEST_DATABASE_URL"):
        return Kind.GIVEN
    name = environ.get("TEST_DATABASE") or Kind.EMBEDDED
    if name not in (Kind.CONTAINER, Kind.EMBEDDED):
        raise UnusableServer(f"TEST_DATABASE is {name!r}; it can be 'embedded' (the default) or 'container'")
    return Kind(name)


@contextmanager
def container() -> Iterator[str]:
    """A server in a container; its URL."""
    # Imported here: Docker's client takes half a second, and most runs do not need it.
    from docker.errors import DockerException  # noqa: PLC0415
    from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415

    try:
        server = PostgresContainer(IMAGE, driver=None).with_command(COMMAND)
        server.start()
    except (DockerException, TimeoutError) as error:
        raise UnusableServer(
            f"TEST_DATABASE=container needs a Docker engine that can run {IMAGE}: {error}. "
            "Start Docker, or run without TEST_DATABASE to use the embedded server."
        ) from error
    try:
        yield str(server.get_connection_url())
    finally:
        server.stop()


@asynccontextmanager
async def embedded() -> AsyncIterator[str]:
    """A server of our own in a temporary folder; its URL."""
    with tempfile.TemporaryDirectory(prefix="pilotlight-test-") as home:
        async with EmbeddedPostgres(Path(home), durable=False) as running:
            await cheapen_logins(running.url)
            yield running.url


async def cheapen_logins(url: str) -> None:
    """Hash the role's password once instead of 4,096 times: tests open many thousands of connections."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET scram_iterations = 1")
        await connection.execute(f"ALTER ROLE CURRENT_USER PASSWORD '{urlsplit(url).password}'")
    finally:
        await connection.close()
