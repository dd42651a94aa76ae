"""Names of projects and tokens: short, printable, and not only spaces."""

from collections.abc import Iterator

from server.errors import Problem

LONGEST = 100


def name_problems(name: str, code: str, path: tuple[str, ...]) -> Iterator[Problem]:
    if not 1 <= len(name) <= LONGEST or not name.strip() or not name.isprintable():
        yield Problem(code, f"The name has 1 to {LONGEST} printable characters.", path)
