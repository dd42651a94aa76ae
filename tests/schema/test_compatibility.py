"""A breaking change of the schema fails the check until the list of changes names it."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from graphql import GraphQLEnumType, GraphQLSchema, build_schema

from schema.compatibility import breaking_changes, newest_section, undeclared_changes
from server.cli.sdl import schema_check

ROOT = Path(__file__).parents[2]

OLD = """
type Query { a: Int  b(x: Int): String  c(of: Of, in: In): Any  gone: Gone }
enum Of { ONE TWO }
input In { f: Int  g: Int }
type Gone { x: Int }
type One implements Face { id: ID!  more: Int }
type Two implements Face { id: ID! }
interface Face { id: ID! }
union Any = One | Two
"""
CHANGES = "# Changes\n\n## 2.0, not released yet\n\n{said}\n\n## 1.0\n\n- `Query.a` was different.\n"


@pytest.mark.parametrize(
    ("old", "new", "coordinate"),
    [
        ("a: Int", "a: String", "Query.a"),
        ("a: Int ", "", "Query.a"),
        ("b(x: Int)", "b", "Query.b(x:)"),
        ("b(x: Int)", "b(x: Int, y: Int!)", "Query.b(y:)"),
        ("b(x: Int)", "b(x: Int!)", "Query.b(x:)"),
        ("ONE TWO", "ONE", "Of.TWO"),
        ("g: Int }", "}", "In.g"),
        ("g: Int }", "g: Int!  }", "In.g"),
        ("g: Int }", "g: Int h: Int! }", "In.h"),
        ("more: Int", "", "One.more"),
        ("type Two implements Face", "type Two", "Two"),
        ("union Any = One | Two", "union Any = One", "Any"),
    ],
)
def test_each_breaking_change_is_reported_with_its_coordinate(old: str, new: str, coordinate: str):
    assert old in OLD
    now = OLD.replace(old, new)

    assert [change.coordinate for change in breaking_changes(OLD, now)] == [coordinate]
    assert undeclared_changes(OLD, now, CHANGES.format(said="- Something else.")) == breaking_changes(OLD, now)
    assert undeclared_changes(OLD, now, CHANGES.format(said=f"- Breaking: `{coordinate}` is another.")) == []


def test_a_type_that_is_gone_takes_its_fields_with_it():
    now = OLD.replace("gone: Gone", "").replace("type Gone { x: Int }", "")
    assert {change.coordinate for change in breaking_changes(OLD, now)} == {"Query.gone", "Gone"}


def test_additions_are_not_breaking():
    now = OLD.replace("a: Int", "a: Int  new(x: Int = 1): Int").replace("ONE TWO", "ONE TWO THREE")
    assert breaking_changes(OLD, now.replace("g: Int }", "g: Int  h: Int! = 1 }")) == []


def test_what_was_said_for_an_older_release_does_not_count():
    now = OLD.replace("a: Int", "a: String")
    assert [change.coordinate for change in undeclared_changes(OLD, now, CHANGES.format(said="-"))] == ["Query.a"]
    assert newest_section("# nothing") == ""


def test_the_command_refuses_what_breaks_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sdl = (ROOT / "schema" / "schema.graphql").read_text()
    released = tmp_path / "released.graphql"
    released.write_text(sdl.replace("type Query {", "type Query {\n  bygone: Int\n"))
    changes = tmp_path / "CHANGELOG.md"

    changes.write_text("# Changes\n\n## Next\n\n- Nothing.\n")
    command = [str(Path(sys.executable).with_name("pilotlight")), "schema", "check"]
    options = ["--released", str(released), "--changes", str(changes)]
    refused = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)
    assert refused.returncode == 1
    assert "`Query.bygone`: Field Query.bygone was removed." in refused.stderr

    changes.write_text("# Changes\n\n## Next\n\n- Breaking: `Query.bygone` is gone.\n")
    schema_check(released, changes)
    assert capsys.readouterr().out.startswith("the schema file is fresh")


def test_this_schema_has_no_unlisted_breaking_change():
    files = ("schema/released.graphql", "schema/schema.graphql", "CHANGELOG.md")
    released, present, changes = ((ROOT / name).read_text() for name in files)
    assert undeclared_changes(released, present, changes) == []


def test_the_section_of_a_release_names_what_breaks_clients_of_the_release_before():
    """0.1 is released-0.1.graphql; released.graphql is 0.2.0, and later changes are compared with that alone."""
    before, released = ((ROOT / "schema" / name).read_text() for name in ("released-0.1.graphql", "released.graphql"))
    changes = (ROOT / "CHANGELOG.md").read_text()
    section = changes[changes.index("\n## 0.2.0\n") :]

    assert len(breaking_changes(before, released)) == 6
    assert undeclared_changes(before, released, section) == []
    assert undeclared_changes(before, released, section.replace("`InstanceResult.id`", "")) != []


@cache
def read(file: str) -> GraphQLSchema:
    return build_schema((ROOT / "schema" / file).read_text())


@pytest.mark.parametrize("file", ["released-0.1.graphql", "released.graphql"])
@pytest.mark.parametrize("name", ["InstanceStatus", "OperationKind", "OperationPhase"])
def test_words_that_an_older_process_checks_get_no_new_member(name: str, file: str):
    """A row with a new one would fail in processes of an older release, which run beside ours for a while."""
    released, present = (cast("GraphQLEnumType", read(each).type_map[name]) for each in (file, "schema.graphql"))
    assert set(present.values) == set(released.values)
