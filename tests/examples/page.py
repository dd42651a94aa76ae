"""Parses docs/clients.md into headings, code blocks and tables."""

import re
from dataclasses import dataclass

from tests.support.processes import ROOT

PAGE = (ROOT / "docs/clients.md").read_text()


@dataclass(frozen=True)
class Block:
    """A fenced block, with what the comment before it says: `from FILE`, `run` or `run in FOLDER`."""

    note: str
    language: str
    text: str

    @property
    def source(self) -> str:
        return self.note.removeprefix("from ") if self.note.startswith("from ") else ""


BLOCKS = [
    Block(*found)
    for found in re.findall(r"(?:^<!-- (.*?) -->\n)?^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]


def commands_in(folder: str) -> list[str]:
    """What the page says is to be typed there, line by line."""
    [block] = [block for block in BLOCKS if block.note == f"run in {folder}"]
    return block.text.splitlines()
