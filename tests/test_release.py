"""What a release consists of has one version, and the archive has what a wheel is built from."""

import json
import re
import tomllib

from server import __version__
from tests.support.processes import ROOT


def test_everything_that_is_released_has_the_same_version():
    versions = {
        file: tomllib.loads((ROOT / file).read_text())["project"]["version"]
        for file in ("pyproject.toml", "client/pyproject.toml")
    }
    versions["web/package.json"] = json.loads((ROOT / "web/package.json").read_text())["version"]
    images = [*(ROOT / "deploy/kubernetes").glob("*.yaml"), ROOT / "deploy/kubernetes/README.md"]
    for file in images:
        versions |= {f"{file.name} {found}": found for found in re.findall(r"pilotlight:(\d[\d.]+)", file.read_text())}
    assert {file: found for file, found in versions.items() if found != __version__} == {}
    assert __version__ in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1].splitlines()[0]


def test_the_archive_contains_the_built_pages_that_git_ignores():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert built["sdist"]["artifacts"] == ["/web/dist", "/web/graphiql/dist"]
