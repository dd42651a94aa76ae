"""Markers: the end of a machine's name at the provider, by which the create that made it is found again.

A marker is derived, not drawn: after a restored backup, the create of a row or of a repeated request finds its machine
although the attempt is lost. Its parts are the project, the create, and the number of the attempt:

    pl 1f3c9 0a62b77d9e41 001

The create's part is a hash over ids with 74 random bits each, so that a name chosen by hand does not match by accident.
Markers of earlier versions are 16 random digits.
"""

import re
import secrets
from hashlib import sha256
from uuid import UUID

PREFIX = "pl"
MARKED = re.compile(r"(?:^|-)(pl(?:[0-9a-f]{20}|[0-9a-f]{16}))$")
LONGEST_SLUG = 56
NUMBER_MAX = 0xFFF


def derived_marker(project_id: UUID, create: str, number: int) -> str:
    """The marker of one attempt. `create` identifies the create within its project."""
    return f"{create_part(project_id, create)}{number:03x}" if number <= NUMBER_MAX else random_marker()


def create_part(project_id: UUID, create: str) -> str:
    """What the markers of all attempts of one create begin with."""
    return f"{PREFIX}{project_part(project_id)}{sha256(project_id.bytes + create.encode()).hexdigest()[:12]}"


def project_part(project_id: UUID) -> str:
    return sha256(project_id.bytes).hexdigest()[:5]


def random_marker() -> str:
    """For a create whose derived marker is taken."""
    return PREFIX + secrets.token_hex(8)


def novita_name(name: str, marker: str) -> str:
    """The name at the provider, which allows letters, digits and hyphens. The marker identifies the machine."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:LONGEST_SLUG].strip("-")
    return f"{slug}-{marker}" if slug else marker


def marker_of(name: str) -> str | None:
    """The marker in a machine's name, if it has one."""
    marked = MARKED.search(name)
    return marked.group(1) if marked else None


def project_part_of(marker: str | None) -> str | None:
    """The project's part of a derived marker."""
    return marker[2:7] if marker is not None and len(marker) == 22 else None
