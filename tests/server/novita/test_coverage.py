"""The table of the provider's operations in docs/provider.md says what client, simulator and schema really have."""

import re
from pathlib import Path

from schema.root import schema
from server.novita.client import NovitaClient
from server.simulator.app import HANDLERS, HOST_HANDLERS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "provider.md"
ROW = re.compile(r"^\| `((?:GET|POST) [^`]+)` \| `(\w+)` \| (?:`(\w+)` )?\| (.*)\|$", re.MULTILINE)
ROOTS = ("Query", "Mutation", "Subscription")
# Without a route of their own.
INNER = {"all_instances", "all_network_storages", "check_create"}


def table() -> list[tuple[str, ...]]:
    return ROW.findall(PAGE.read_text())


def test_every_route_of_the_simulator_has_one_row():
    routes = [route for route, *_ in table()]
    assert len(routes) == len(set(routes))
    assert set(routes) == {*HANDLERS, *HOST_HANDLERS}


def test_every_method_of_the_client_has_a_row():
    calls = {name for group in NovitaClient.__bases__ for name in vars(group) if not name.startswith("_")}
    assert {method for _, method, *_ in table()} == calls - INNER


def test_every_row_names_a_field_of_the_schema_or_says_why_there_is_none():
    fields = {name for root in ROOTS for name in schema._schema.type_map[root].fields}  # type: ignore[attr-defined]
    for route, _, field, reason in table():
        assert bool(field) != bool(reason.strip()), route
        assert not field or field in fields, route


def test_each_open_question_names_a_place_in_the_code_that_exists():
    page = PAGE.read_text()
    assert "**It has not met the live service yet**" in page
    table = page[page.index("| open question") :].partition("\n\n")[0].splitlines()[2:]
    code = {str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "server").rglob("*.py")}
    assert len(table) >= 15
    for line in table:
        place = line.split("|")[2]
        for name in re.findall(r"`([a-z_/]+(?:\.py)?)`", place):
            if name.endswith(".py"):
                assert any(path.endswith(f"/{name}") or path == name for path in code), line
            else:
                assert any(f"def {name}(" in source for source in code.values()), line
        assert "`server/" in place or "same file" in place or place.strip().startswith("none: "), line


def test_nearly_everything_that_the_provider_offers_is_exposed():
    assert sum(bool(field) for _, _, field, _ in table()) >= 38
