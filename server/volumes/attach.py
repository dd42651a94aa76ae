"""Which volumes a new instance may have: those of its project that are there, in one region, and free."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.tables import VolumeAttachment
from server.enums import VolumeStatus
from server.errors import Invalid, Problem
from server.volumes.draft import VolumeMount

TABLE = "volume_attachment"
EXCLUSIVE_INDEX = "volume_attachment_is_exclusive"

# The name of an instance that holds it, and whether one that is deleted still seems to: processes of a release without
# volumes delete instances, too.
WANTED = """
    SELECT id, novita_id, region, status,
           (SELECT min(holder.name) FROM volume_attachment JOIN instance AS holder ON holder.id = instance_id
            WHERE volume_id = volume.id AND holder.status <> 'DELETED') AS holder,
           EXISTS (SELECT FROM volume_attachment JOIN instance AS holder ON holder.id = instance_id
                   WHERE volume_id = volume.id AND holder.status = 'DELETED') AS is_left_over
    FROM volume WHERE id = ANY($1::uuid[]) AND project_id = $2 AND status <> 'DELETED'
"""
RELEASE_LEFT_OVER = """
    DELETE FROM volume_attachment USING instance
    WHERE instance.id = instance_id AND volume_id = ANY($1::uuid[]) AND instance.status = 'DELETED'
"""


def can_share(region: str) -> bool:
    """Whether two machines may hold one volume. The provider's documents do not say it; one writer is always safe."""
    return False


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume of the project, with its place in the new instance."""

    volume_id: UUID
    novita_id: str
    region: str
    mount_path: str

    def to_json(self) -> dict[str, str]:
        """As `instance.volumes` has it."""
        return {"volume_id": str(self.volume_id), "novita_id": self.novita_id, "mount_path": self.mount_path}

    def attachment(self, instance_id: UUID) -> dict[str, Any]:
        """The row that holds it."""
        return {
            "instance_id": instance_id,
            "volume_id": self.volume_id,
            "is_exclusive": not can_share(self.region),
        }


async def find_mounted(
    database: Database, mounts: Sequence[VolumeMount], *, project_id: UUID
) -> tuple[MountedVolume, ...]:
    """The volumes of these mounts. Raises Invalid with every problem."""
    if not mounts:
        return ()
    rows = await database.raw.fetch(WANTED, [mount.id for mount in mounts], project_id)
    by_id = {row["id"]: row for row in rows}
    problems = [
        Problem(*problem, ("input", "volumes", str(index), "id"))
        for index, mount in enumerate(mounts)
        if (problem := _problem(by_id.get(mount.id))) is not None
    ]
    regions = sorted({row["region"] for row in rows})
    if len(regions) > 1:
        message = f"The volumes are in different regions: {', '.join(regions)}."
        problems.append(Problem("VOLUME_REGION_MISMATCH", message, ("input", "volumes")))
    if problems:
        raise Invalid(problems)
    if any(row["is_left_over"] for row in rows):
        await database.raw.execute(RELEASE_LEFT_OVER, list(by_id))
    return tuple(
        MountedVolume(mount.id, by_id[mount.id]["novita_id"], by_id[mount.id]["region"], mount.mount_path)
        for mount in mounts
    )


async def release(session: AsyncSession, instance_id: UUID) -> None:
    """An instance that is deleted holds nothing any more."""
    await session.execute(delete(VolumeAttachment).where(VolumeAttachment.instance_id == instance_id))


def in_use() -> Invalid:
    """For the create that lost against another one."""
    message = "Another instance has just taken one of the volumes."
    return Invalid([Problem("VOLUME_IN_USE", message, ("input", "volumes"))])


def not_available() -> Invalid:
    """For the create whose volume was deleted, or was lost at the provider, after it had looked."""
    message = "One of the volumes is no longer AVAILABLE."
    return Invalid([Problem("VOLUME_NOT_AVAILABLE", message, ("input", "volumes"))])


def _problem(row: Any) -> tuple[str, str] | None:
    """Code and message."""
    if row is None:
        return "VOLUME_NOT_FOUND", "There is no such volume."
    if row["status"] != VolumeStatus.AVAILABLE:
        return "VOLUME_NOT_AVAILABLE", f"The volume is {row['status']}; it must be AVAILABLE."
    if row["holder"] is not None and not can_share(row["region"]):
        return "VOLUME_IN_USE", f"The instance {row['holder']} has it; delete that one first."
    return None
