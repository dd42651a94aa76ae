"""Pages are built once, atomically, and again when their sources change."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from server.cli import build_pages
from server.cli.build_pages import Builder, BuildFailed, PageSource, build, find_npm
from server.http.pages import BuildStatus
from tests.support.processes import ROOT, control, up
from tests.support.waiting import until

# Counts its own builds, and puts dist into place at the end as the real ones do.
SCRIPT = "echo x >> builds && mkdir -p dist && cat src/page.txt > dist/index.html"


@pytest.fixture
async def page(tmp_path: Path) -> PageSource:
    try:
        await find_npm()
    except BuildFailed as problem:
        pytest.skip(f"no npm: {problem}")
    package = {"name": "page", "version": "1.0.0", "private": True, "scripts": {"build": SCRIPT}}
    lock = {"name": "page", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": {"": package}}
    (tmp_path / "package.json").write_text(json.dumps(package))
    (tmp_path / "package-lock.json").write_text(json.dumps(lock))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "page.txt").write_text("one")
    return PageSource("page", tmp_path, build_pages.INPUTS)


async def test_a_page_is_built_once_and_again_when_its_sources_change(page: PageSource):
    assert not page.is_fresh()
    await build(page)
    assert page.is_fresh()
    await build(page)
    assert _builds(page) == 1

    (page.folder / "src" / "page.txt").write_text("two")
    assert not page.is_fresh()
    await build(page)

    assert (page.folder / "dist" / "index.html").read_text() == "two"
    assert _builds(page) == 2


async def test_two_who_build_at_once_build_once(page: PageSource):
    await asyncio.gather(build(page), build(page), build(page))

    assert _builds(page) == 1


async def test_a_build_that_fails_says_what_was_said_and_is_made_again(page: PageSource):
    (page.folder / "src" / "page.txt").unlink()
    (page.folder / "src" / "other.txt").write_text("")

    with pytest.raises(BuildFailed, match=r"page\.txt"):
        await build(page)

    assert not page.is_fresh()
    (page.folder / "src" / "page.txt").write_text("again")
    await build(page)
    assert page.is_fresh()


async def test_a_builder_works_beside_the_rest_and_says_when_it_is_done(page: PageSource):
    builder = Builder((page,))

    async with builder.in_background():
        assert builder.status is BuildStatus.BUILDING
        await until(lambda: builder.status is not BuildStatus.BUILDING, within=60)

    assert page.is_fresh()


async def test_a_builder_that_is_stopped_leaves_nothing_half_done(page: PageSource):
    package = json.loads((page.folder / "package.json").read_text())
    package["scripts"]["build"] = "touch begun && sleep 600"
    (page.folder / "package.json").write_text(json.dumps(package))
    builder = Builder((page,))

    async with builder.in_background():
        await until((page.folder / "begun").exists, within=60)

    assert not page.is_fresh()
    async with asyncio.timeout(10), build_pages._exclusive_lock(page.folder / ".building"):  # pyright: ignore[reportPrivateUsage]
        pass  # the lock is free again


async def test_a_page_that_can_not_be_built_leaves_everything_else_alone(page: PageSource):
    (page.folder / "src" / "page.txt").unlink()
    builder = Builder((page,))

    async with builder.in_background():
        await until(lambda: builder.status is BuildStatus.FAILED, within=60)


async def test_where_there_is_no_clone_there_is_nothing_to_build(tmp_path: Path):
    builder = Builder((PageSource("page", tmp_path, build_pages.INPUTS),))

    async with builder.in_background():
        await until(lambda: builder.status is BuildStatus.ABSENT)

    assert list(tmp_path.iterdir()) == []


async def test_up_builds_the_pages_of_its_clone_if_the_setting_says_so(page: PageSource, migrated_home: Path):
    clone = page.folder / "clone"
    clone.mkdir()
    for name in ("server", "schema", "migrations", "alembic.ini"):
        (clone / name).symlink_to(ROOT / name)
    (clone / "web").symlink_to(page.folder)
    command = (sys.executable, "-c", "from server.cli.main import main; main()")
    env = {"BUILD_PAGES": "true", "PYTHONPATH": str(clone), "SIMULATOR_SPEED": "20"}

    async with up(migrated_home, env=env, command=command) as running:
        await until((page.folder / "dist" / ".stamp").exists, within=60)
        simulator = await control(running.ready["simulatorUrl"], "state")

    assert _builds(page) == 1
    assert simulator["speed"] == 20


def _builds(page: PageSource) -> int:
    return len((page.folder / "builds").read_text().splitlines())
