"""docs/clients.md shows parts of programs that are run, documents that fit the schema, and commands that work."""

import re
import textwrap
from pathlib import Path

import pytest
from graphql import build_schema, parse, validate

from server.config import Settings
from tests.examples.page import BLOCKS, PAGE, Block
from tests.examples.programs import EXAMPLES, running
from tests.support.processes import ROOT, Up

SCHEMA = build_schema((ROOT / "schema/schema.graphql").read_text())
COPIED = [block for block in BLOCKS if block.source]
DOCUMENTS = [block for block in BLOCKS if block.language == "graphql"]
COMMANDS = [block for block in BLOCKS if block.note == "run"]


def test_every_block_is_a_copy_a_document_or_a_command():
    elsewhere = [block for block in BLOCKS if block.note.startswith("run in ")]  # test_typed.py runs these

    assert len(COPIED) >= 8
    assert len(COPIED) + len(DOCUMENTS) + len(COMMANDS) + len(elsewhere) == len(BLOCKS)


@pytest.mark.parametrize("block", COPIED, ids=lambda block: block.source)
def test_what_it_shows_of_a_program_is_in_that_program(block: Block):
    assert block.text.strip()
    source = (ROOT / block.source).read_text()
    indents = {re.match(" *", line)[0] for line in source.splitlines()}  # type: ignore[index]

    assert any(textwrap.indent(block.text, indent) in source for indent in indents)


@pytest.mark.parametrize("block", DOCUMENTS, ids=lambda block: block.text.split("(")[0].strip()[:30])
def test_its_documents_fit_the_schema(block: Block):
    assert validate(SCHEMA, parse(block.text)) == []


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.text.split()[0])
async def test_its_commands_are_answered_with_data(block: Block, server: Up, tmp_path: Path):
    environment = {"PILOTLIGHT_URL": server.graphql_url, "PILOTLIGHT_TOKEN": server.token}

    async with running(["bash", "-c", block.text], tmp_path, **environment) as command:
        await command.ends()

    said = "".join(command.lines)
    assert '"data":{' in said, command.said
    assert '"errors"' not in said


def test_the_codes_that_it_explains_exist_and_none_is_forgotten():
    table = PAGE.split("**1. `errors` beside `data`**")[1].split("**2.")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ") and "---" not in row][1:]
    documented = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", " ".join(cells)))
    documented |= {f"INVALID_{rest}" for cell in cells for rest in re.findall(r"(?<= )_([A-Z_]+)", cell)}
    folders = (ROOT / "schema", ROOT / "server" / "graphql")
    source = "\n".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))
    # As an extension of an error, or as the refusal of a whole request.
    # Warnings of the fleet are data, no errors.
    made = set(re.findall(r'(?:"code": |(?<!FleetWarning\()code=)"([A-Z_]+)"', source))
    made |= set(re.findall(r'HttpError\(\s*\d+,\s*f?"[^"]*",\s*"([A-Z_]+)"', source))

    assert made - documented == set()
    assert [code for code in documented if code not in source] == []


def test_its_figures_are_those_of_the_settings():
    fields = Settings.model_fields

    assert f"requests a minute, {fields['request_rate_limit'].default:,} by default" in PAGE
    assert f"pings every {fields['socket_ping_interval'].default.total_seconds():.0f} seconds" in PAGE
    assert f"within {fields['webhook_timeout'].default.total_seconds():.0f} s" in PAGE


def test_its_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        if "://" not in link:
            file, _, heading = link.partition("#")
            assert (ROOT / "docs" / file).exists(), link
            assert not heading or heading in anchors_of(ROOT / "docs" / file), link


def test_every_example_is_in_the_list_and_run_by_a_test():
    listed = set(re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text())) - {"../docs/clients.md"}
    programs = {
        file for pattern in ("python*/*.py", "typescript/src/*.ts", "curl/*.sh") for file in EXAMPLES.glob(pattern)
    }
    folders = (Path(__file__).parent, Path(__file__).parents[1] / "client")
    tests = "\n".join(file.read_text() for folder in folders for file in folder.glob("*.py")) + PAGE

    assert listed == {str(file.relative_to(EXAMPLES)) for file in programs}
    assert [file for file in programs if file.name.replace(".ts", ".js") not in tests] == []


def anchors_of(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
