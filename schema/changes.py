"""Whether a change of the schema breaks those who use it, and whether it was said beforehand."""

import re
from dataclasses import dataclass

from graphql import build_schema, find_breaking_changes

# Query.instances(first:), Instance.name, Role.ADMIN, @oneOf, or a type alone.
COORDINATE = re.compile(r"@\w+(?:\(\w+:\))?|\b\w+\.\w+(?:\(\w+:\))?")
IN_UNION = re.compile(r"from union type (\w+)\.$")


@dataclass(frozen=True, slots=True)
class Change:
    """What breaks, by its coordinate, and how."""

    coordinate: str
    description: str


def breaking(released: str, present: str) -> list[Change]:
    """What those would meet who were built for the released schema."""
    found = find_breaking_changes(build_schema(released), build_schema(present))
    return [Change(_coordinate(each.description), each.description) for each in found]


def undeclared(released: str, present: str, changes: str) -> list[Change]:
    """Those that the newest section of the list of changes does not name, each as `Type.field`."""
    said = set(re.findall(r"`([^`]+)`", newest_section(changes)))
    return [change for change in breaking(released, present) if change.coordinate not in said]


def newest_section(changes: str) -> str:
    """What was written since the last release."""
    sections = re.split(r"(?m)^## ", changes)
    return sections[1] if len(sections) > 1 else ""


def _coordinate(description: str) -> str:
    union = IN_UNION.search(description)
    if union is not None:
        return union[1]
    found = COORDINATE.search(description)
    return found[0] if found is not None else description.split()[0]
