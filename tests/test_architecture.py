"""What holds for the code as a whole."""

import re
import subprocess
import sys
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
from server.jobs.handler import all_handlers
from server.queue.kinds import DECLARED, check_handled
from tests.world import World, world

__all__ = ["world"]

ROOT = Path(__file__).parents[1]
CODE = sorted([*(ROOT / "server").rglob("*.py"), *(ROOT / "schema").rglob("*.py")])
LONGEST = 400
GRAPHQL = cast("GraphQLSchema", schema._schema)  # the printed form has no descriptions to look up by type


def shown(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_no_file_is_longer_than_four_hundred_lines():
    lines = {shown(file): len(file.read_text().splitlines()) for file in CODE}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


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
    """The migration script is run by other tools too, and the embedded server hands its own on to a child."""
    reading = {shown(file) for file in CODE if re.search(r"os\.(environ|getenv)", file.read_text())}
    assert reading <= {"server/config.py", "server/db/launch.py", "server/db/child.py"}


def test_status_of_an_instance_is_written_in_one_place():
    writing = re.compile(r"update\(Instance\)[^)]*\)\s*\.values\([^)]*\bstatus=|UPDATE instance\s+SET[^;]*?\bstatus =")
    assert [shown(file) for file in CODE if writing.search(file.read_text())] == []


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


def test_enums_of_the_schema_reach_resolvers_as_members():
    """Not as plain words, which a sorted schema makes of them."""
    enums = [each for each in _own_types() if isinstance(each, GraphQLEnumType)]
    assert enums != []
    words = [each.name for each in enums for name in each.values if not isinstance(each.parse_value(name), Enum)]
    assert words == []


async def test_every_kind_of_job_has_a_handler(world: World):
    handlers = all_handlers(world.services_with(world.novita))
    assert set(handlers) == set(DECLARED)
    check_handled(handlers)
