"""Checks of requests about network volumes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from server.errors import Problem

MAX_NAME = 255
SIZE_MIN_GB, SIZE_MAX_GB = 10, 10_240
MOUNTS_MAX = 30
MAX_PATH = 255
INVALID = "INVALID_VOLUME"


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume that a new instance shall have, and where."""

    id: UUID
    mount_path: str


def name_problems(name: str) -> Iterator[Problem]:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        yield Problem(INVALID, f"A volume's name has 1 to {MAX_NAME} printable characters.", ("input", "name"))


def size_problems(size_gb: int) -> Iterator[Problem]:
    if not SIZE_MIN_GB <= size_gb <= SIZE_MAX_GB:
        yield Problem(INVALID, f"A volume has {SIZE_MIN_GB} to {SIZE_MAX_GB} GB.", ("input", "sizeGb"))


def mount_problems(mounts: Sequence[VolumeMount]) -> Iterator[Problem]:
    """What is wrong with the volumes of a new instance, without looking at the volumes themselves."""
    if len(mounts) > MOUNTS_MAX:
        yield Problem(INVALID, f"An instance takes at most {MOUNTS_MAX} volumes.", ("input", "volumes"))
    for index, mount in enumerate(mounts):
        at = ("input", "volumes", str(index))
        if not _is_mount_path(mount.mount_path):
            message = f"A mount path is absolute, is not /, has no `..` and no `//`, and at most {MAX_PATH} characters."
            yield Problem(INVALID, message, (*at, "mountPath"))
        before = mounts[:index]
        if any(other.id == mount.id for other in before):
            yield Problem(INVALID, "The volume is given twice.", (*at, "id"))
        if any(_overlap(other.mount_path, mount.mount_path) for other in before):
            yield Problem(INVALID, "Another volume is mounted at, above or below this path.", (*at, "mountPath"))


def _is_mount_path(path: str) -> bool:
    is_plain = path.startswith("/") and path.isprintable() and len(path) <= MAX_PATH
    is_normal = not {"", ".", ".."} & set(path.rstrip("/").split("/")[1:])
    return is_plain and bool(path.strip("/").strip()) and is_normal


def _overlap(one: str, other: str) -> bool:
    """Whether one path is the other, or below it."""
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)
