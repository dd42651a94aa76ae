"""Runs the page's pure functions under Node's test runner."""

import asyncio
import json
import re
from pathlib import Path

from server.cli.build_pages import find_npm
from server.graphql.documents.persisted import read_persisted


async def test_what_the_page_thinks_is_right(built: Path):
    npm = await find_npm()
    process = await asyncio.create_subprocess_exec(
        *npm.command,
        "test",
        "--silent",
        cwd=built.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()

    assert process.returncode == 0, said.decode()[-4000:]
    assert b"# fail 0" in said
    assert b"# tests 0" not in said


def test_every_document_of_the_page_is_in_the_list_for_servers_that_answer_no_others(built: Path):
    known = read_persisted(built / "documents.json")

    made = (built.parent / "src" / "generated" / "api.ts").read_text()
    sent = [json.loads(text) for text in re.findall(r"= \{ text: (\".*\") \};", made)]
    assert len(sent) > 20
    assert set(known.values()) == set(sent)
