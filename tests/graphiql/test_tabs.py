"""The tabs that GraphiQL opens with fit the schema and have the documented names."""

import json
import re
from pathlib import Path

import pytest
from graphql import DocumentNode, OperationDefinitionNode, build_schema, parse, validate
from graphql.execution.values import get_variable_values

from tests.support.processes import ROOT

SOURCE = ROOT / "web/graphiql/src"
TABS = sorted((SOURCE / "tabs").glob("*.graphql"))
SCHEMA = build_schema((ROOT / "schema/schema.graphql").read_text())


def operation_in(document: DocumentNode) -> OperationDefinitionNode:
    [operation] = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    return operation


@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.stem)
def test_a_tab_is_valid_with_its_variables_and_has_its_name(tab: Path):
    document = parse(tab.read_text())
    operation = operation_in(document)
    variables = tab.with_suffix(".json")
    given = json.loads(variables.read_text()) if variables.exists() else {}

    assert validate(SCHEMA, document) == []
    assert not isinstance(get_variable_values(SCHEMA, operation.variable_definitions or (), given), list)
    assert set(given) <= {each.variable.name.value for each in operation.variable_definitions or ()}
    assert operation.name is not None
    assert operation.name.value.lower() == tab.stem


def test_all_of_them_are_shown():
    [order] = re.findall(r"ORDER = \[([^]]*)\]", (SOURCE / "tabs.ts").read_text())

    wanted = "create watch start quote fleet spend lifetimes market logs jobs"
    assert re.findall(r"\w+", order) == wanted.split()
    assert {tab.stem for tab in TABS} == set(re.findall(r"\w+", order))


@pytest.mark.parametrize("folder", ["web/graphiql", "examples/typescript"])
def test_a_lock_file_names_no_registry(folder: str):
    lock = json.loads((ROOT / folder / "package-lock.json").read_text())

    assert len(lock["packages"]) > 10
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
