"""Breaking changes of the schema, and whether the changelog declares them."""

import re
from dataclasses import dataclass

from graphql import build_schema, find_breaking_changes

# Query.instances(first:), Instance.name, Role.ADMIN, @oneOf, or a type alone.
COORDINATE = re.compile(r"@\w+(?:\(\w+:\))?|\b\w+\.\w+(?:\(\w+:\))?")
IN_UNION = re.compile(r"from union type (\w+)\.$")


@dataclass(frozen=True, slots=True)
class BreakingChange:
    """A breaking change: its schema coordinate and a description."""

    coordinate: str
    description: str


def breaking_changes(released: str, present: str) -> list[BreakingChange]:
    """Changes that break clients of the released schema."""
    found = find_breaking_changes(build_schema(released), build_schema(present))
    return [BreakingChange(_coordinate(each.description), each.description) for each in found]


def undeclared_changes(released: str, present: str, changes: str) -> list[BreakingChange]:
    """Breaking changes that the newest section of the changelog does not name as `Type.field`."""
    said = set(re.findall(r"`([^`]+)`", newest_section(changes)))
    return [change for change in breaking_changes(released, present) if change.coordinate not in said]


def newest_section(changes: str) -> str:
    """The entries since the last release."""
    sections = re.split(r"(?m)^## ", changes)
    return sections[1] if len(sections) > 1 else ""


def _coordinate(description: str) -> str:
    union = IN_UNION.search(description)
    if union is not None:
        return union[1]
    found = COORDINATE.search(description)
    return found[0] if found is not None else description.split()[0]
