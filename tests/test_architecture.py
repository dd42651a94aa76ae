"""Rules for the whole code base: layers, sizes and conventions."""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import cast

from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    specified_scalar_types,
)

from schema.root import schema
from server.jobs.registry import all_handlers, check_handled
from server.queue.kinds import DECLARED
from tests.support.world import World

ROOT = Path(__file__).parents[1]
CODE = sorted([*(ROOT / "server").rglob("*.py"), *(ROOT / "schema").rglob("*.py")])
LINES_MAX, MODULES_MAX = 350, 20
GRAPHQL = cast("GraphQLSchema", schema._schema)  # the printed form has no descriptions to look up by type


def shown(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_no_file_is_longer_than_three_hundred_and_fifty_lines():
    lines = {shown(file): len(file.read_text().splitlines()) for file in CODE}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}


def test_no_folder_has_more_than_twenty_modules():
    modules = Counter(shown(file.parent) for file in CODE if file.name != "__init__.py")
    assert {folder: count for folder, count in modules.items() if count > MODULES_MAX} == {}


def test_every_module_of_the_server_is_in_a_layer():
    """The contract itself is not exhaustive: import-linter can't check that over two root packages."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [each for each in settings["contracts"] if each["name"] == "Data flows one way"]
    layers = {name.strip() for layer in contract["layers"] for name in re.split("[|:]", layer)}
    modules = {f"server.{each.stem}" for each in (ROOT / "server").glob("*.py") if each.stem != "__init__"}
    packages = {f"server.{each.parent.name}" for each in (ROOT / "server").glob("*/*.py")}

    assert modules | packages | {"schema"} == layers


def test_every_file_says_what_it_is_for():
    silent = [shown(file) for file in CODE if file.read_text().strip() and not file.read_text().startswith('"""')]
    assert silent == []


def test_imports_go_one_way():
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_only_the_settings_read_the_environment():
    """The embedded server hands its own on to a child. The commands for users have no settings of a server."""
    files = [file for file in CODE if not shown(file).startswith("server/cli/user/")]
    reading = {shown(file) for file in files if re.search(r"os\.(environ|getenv)", file.read_text())}
    allowed = {"server/config/__init__.py", "server/db/embedded/launch.py", "server/db/embedded/process.py"}
    assert reading <= allowed


def test_the_committed_schema_is_the_schema_of_the_code():
    assert (ROOT / "schema" / "schema.graphql").read_text().strip() == schema.as_str().strip()


def _own_types() -> list[GraphQLNamedType]:
    known = {each.name for each in specified_scalar_types.values()}
    return [each for name, each in GRAPHQL.type_map.items() if not name.startswith("__") and name not in known]


def test_every_type_of_the_schema_is_described():
    assert [each.name for each in _own_types() if not each.description] == []


def test_every_field_and_argument_of_the_schema_is_described():
    bare: list[str] = []
    for each in _own_types():
        if isinstance(each, GraphQLObjectType | GraphQLInterfaceType | GraphQLInputObjectType):
            bare += [f"{each.name}.{name}" for name, field in each.fields.items() if not field.description]
    assert bare == []


def test_enums_of_the_schema_reach_resolvers_as_enum_members():
    """Not as plain words, which a sorted schema makes of them."""
    enums = [each for each in _own_types() if isinstance(each, GraphQLEnumType)]
    assert enums != []
    words = [each.name for each in enums for name in each.values if not isinstance(each.parse_value(name), Enum)]
    assert words == []


async def test_every_kind_of_job_has_a_handler(world: World):
    handlers = all_handlers(world.services_with(world.novita))
    assert set(handlers) == set(DECLARED)
    check_handled(handlers)
