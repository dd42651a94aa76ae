"""What a release consists of has one version, and the archive has what a wheel is built from."""

import io
import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from server import __version__
from server.config import Settings
from tests.support.processes import ROOT

BUILD: dict[str, Any] = run_path(str(ROOT / "deploy/release/build.py"))


def test_everything_that_is_released_has_the_same_version():
    versions = {
        file: tomllib.loads((ROOT / file).read_text())["project"]["version"]
        for file in ("pyproject.toml", "client/pyproject.toml")
    }
    versions["web/package.json"] = json.loads((ROOT / "web/package.json").read_text())["version"]
    images = [*(ROOT / "deploy/kubernetes").rglob("*.yaml"), ROOT / "deploy/kubernetes/README.md"]
    for file in images:
        versions |= {
            f"{file.name} {found}": found
            for found in re.findall(r"(?:pilotlight:|newTag: )(\d[\d.]+)", file.read_text())
        }
    for file in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        wheels = re.findall(r"pilotlight-(\d[\d.]+)-py3", file.read_text())
        versions |= {f"{file.name} {found}": found for found in wheels}
    assert {file: found for file, found in versions.items() if found != __version__} == {}
    assert __version__ in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1].splitlines()[0]


def test_the_changelog_names_every_new_table_and_only_settings_that_exist():
    """0.1 ended with revision 0010."""
    section = (ROOT / "CHANGELOG.md").read_text().split("\n## 0.2.0\n")[1].split("\n## ")[0]
    migrations = [file for file in (ROOT / "migrations/versions").glob("0*.py") if file.name > "0011"]
    created = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
    tables = {table for file in migrations for table in created.findall(file.read_text())}
    settings = section.split("### New settings")[1].split("### ")[0]

    assert len(tables) >= 32
    assert {table for table in tables if f"`{table}`" not in section} == set()
    assert {name for name in re.findall(r"`([A-Z_]+)`", settings) if name.lower() not in Settings.model_fields} == set()


def test_the_archive_contains_the_built_pages_that_git_ignores():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert built["sdist"]["artifacts"] == ["/web/dist", "/web/graphiql/dist"]


def test_a_release_is_refused_whose_schema_is_not_the_one_to_compare_with(tmp_path: Path):
    (tmp_path / "schema.graphql").write_text("type Query { a: Int }")
    (tmp_path / "released.graphql").write_text("type Query { b: Int }")

    with pytest.raises(SystemExit, match="make schema-release"):
        BUILD["check_schema"](tmp_path)
    (tmp_path / "released.graphql").write_text("type Query { a: Int }")
    BUILD["check_schema"](tmp_path)


def test_two_builds_that_differ_are_refused_with_the_names_of_what_differs(tmp_path: Path):
    pairs: list[list[Path]] = []
    for folder, text in (("one", b"1"), ("two", b"2")):
        (tmp_path / folder).mkdir()
        wheel, archive = tmp_path / folder / "x.whl", tmp_path / folder / "x.tar.gz"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("same", b"1")
            file.writestr("page.js", text)
        with tarfile.open(archive, "w:gz") as file:
            member = tarfile.TarInfo("x/only-in-" + folder)
            member.size = 1
            file.addfile(member, io.BytesIO(text))
        pairs.append([archive, wheel])

    with pytest.raises(SystemExit) as refused:
        BUILD["compare"](*pairs)
    assert str(refused.value).splitlines()[1:] == ["x.tar.gz: x/only-in-one, x/only-in-two", "x.whl: page.js"]
    BUILD["compare"](pairs[0], pairs[0])
