"""Fixtures: one server per test process with one migrated database, and rows deleted between tests."""

import gc
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from server.db.database import Database
from server.db.notify import Notifier
from tests.support import homes, postgres, scratch
from tests.support.api import api, server
from tests.support.databases import DatabaseMaker, RowDeleter
from tests.support.kept import KeptConnections
from tests.support.receiver import receiver
from tests.support.status_guard import StatusGuard
from tests.support.world import quick_polls, world

__all__ = ["api", "quick_polls", "receiver", "server", "world"]  # fixtures for all tests

# Folders whose tests take seconds each, by turns the beginning of the first, second, ... test process.
LONG = ("chaos", "web", "flows", "upgrade", "ha", "graphiql", "examples", "client", "flood", "neighbour")


@pytest.fixture(scope="session")
def installed_status_guard() -> Iterator[StatusGuard]:
    guard = StatusGuard()
    with guard.installed():
        yield guard


@pytest.fixture(autouse=True)
def status_guard(installed_status_guard: StatusGuard) -> Iterator[StatusGuard]:
    """Fails the test if the product wrote an instance's status or version past transitions.py."""
    yield installed_status_guard
    assert installed_status_guard.take() == []


def pytest_configure(config: pytest.Config) -> None:
    """Let processes of tests be interrupted: a shell starts what runs in the background with SIGINT ignored.

    Temporary folders are in memory, those of all test processes in one that the first of them makes.

    TEST_DATABASE=container: one container for all test processes, started by the one without `workerinput`.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and (remove := scratch.use_memory()):
        config.add_cleanup(remove)
    # As the product does: structlog's own tracebacks, with the locals of every frame, block the event loop for seconds
    # on a busy machine, and the database ends transactions that are open meanwhile.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    try:
        if postgres.kind_of(os.environ) is postgres.Kind.CONTAINER and not hasattr(config, "workerinput"):
            container = ExitStack()
            os.environ["TEST_DATABASE_URL"] = container.enter_context(postgres.container())
            config.add_cleanup(container.close)
    except postgres.UnusableServer as problem:
        raise pytest.UsageError(str(problem)) from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, of which there is none, and never search what stays again.

    Afterwards as rarely as the product: with Python's own thresholds, a tenth of the CPU was the collector's.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long. A test process gets an equal part of the list, and one that has done its part takes
    from the end of another's: those are then short tests, which end together and need no server of their own."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    short: list[pytest.Item] = []
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        (parts[LONG.index(folder) % processes] if folder in LONG else short).append(item)
    size = len(items) // processes
    items.clear()
    for part in parts:
        missing = max(0, size - len(part))
        items += part + short[:missing]
        del short[:missing]
    items += short


@pytest.fixture(scope="session")
async def server_url() -> AsyncIterator[str]:
    """A PostgreSQL server: TEST_DATABASE_URL (a container's, if one was chosen), else an embedded one."""
    if postgres.kind_of(os.environ) is postgres.Kind.GIVEN:
        yield os.environ["TEST_DATABASE_URL"]
        return
    async with postgres.embedded() as url:
        yield url


@pytest.fixture(scope="session")
async def new_database(server_url: str) -> AsyncIterator[DatabaseMaker]:
    """Makes empty databases; drops them all at the end."""
    maker = DatabaseMaker(server_url)
    yield maker
    await maker.drop_all()


@pytest.fixture(scope="session")
async def delete_rows(server_url: str) -> AsyncIterator[RowDeleter]:
    """Empties a database that `new_database` made, on a server that outlives all tests."""
    deleter = RowDeleter()
    yield deleter
    await deleter.close()


@pytest.fixture(scope="session")
async def migrated_url(new_database: DatabaseMaker) -> str:
    return await new_database.migrated()


@pytest.fixture
async def database_url(migrated_url: str, delete_rows: RowDeleter) -> AsyncIterator[str]:
    """A migrated database without rows."""
    yield migrated_url
    await delete_rows(migrated_url)


@pytest.fixture(scope="session")
async def kept_connections(server_url: str) -> AsyncIterator[KeptConnections]:
    kept = KeptConnections()
    yield kept
    await kept.close()


@pytest.fixture
async def database(database_url: str, kept_connections: KeptConnections) -> AsyncIterator[Database]:
    async with kept_connections.database(database_url) as database:
        yield database


@pytest.fixture
async def signals(database: Database) -> AsyncIterator[Notifier]:
    signals = Notifier(database)
    signals.start()
    yield signals
    await signals.stop()


@pytest.fixture(scope="session")
async def made_home() -> AsyncIterator[Path]:
    async with homes.made() as home:
        yield home


@pytest.fixture
def migrated_home(made_home: Path) -> Iterator[Path]:
    """A test's own home with a migrated database that is not running: making one takes longer than most tests."""
    with homes.copy_of(made_home) as home:
        yield home


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder for a test's own Pilotlight, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pilotlight-home-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
