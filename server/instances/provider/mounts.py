"""Records the volumes of machines that Pilotlight did not create: after the machine or the volume was adopted."""

from collections.abc import Iterable
from itertools import groupby

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.tables import VolumeAttachment
from server.instances import transitions
from server.novita.models import RemoteInstance
from server.volumes.attach import MountedVolume

NETWORK = "network"

UNRECORDED = text("""
    SELECT instance.id AS instance_id, volume.id AS volume_id, volume.novita_id, volume.region, seen.path
    FROM unnest(CAST(:machines AS text[]), CAST(:storages AS text[]), CAST(:paths AS text[]))
        AS seen (machine, storage, path)
    JOIN instance ON instance.novita_id = machine AND instance.status <> 'DELETED'
    JOIN volume ON volume.novita_id = storage AND volume.status <> 'DELETED' AND volume.project_id = instance.project_id
    WHERE NOT EXISTS (SELECT FROM volume_attachment WHERE instance_id = instance.id AND volume_id = volume.id)
    ORDER BY instance.id, seen.path
""")


async def record_all_mounts(database: Database, remotes: Iterable[RemoteInstance]) -> int:
    """Returns how many instances have more volumes than were known. Costs nothing while no machine has one."""
    holders = [remote for remote in remotes if _mounts(remote)]
    if not holders:
        return 0
    async with database.write() as session:
        return await record_mounts(session, holders, cause=transitions.Cause())


async def record_mounts(session: AsyncSession, remotes: Iterable[RemoteInstance], *, cause: transitions.Cause) -> int:
    """The volumes of the instance's project that its machine has: they are in use until the instance is deleted.

    They are not exclusive, because it is too late to refuse one: if a create was accepted with the same volume, the
    provider decides. A locked instance is left for the next reconcile.
    """
    seen = [(remote.id, storage, path) for remote in remotes for storage, path in _mounts(remote)]
    machines, storages, paths = (list(column) for column in zip(*seen, strict=True)) if seen else ([], [], [])
    found = await session.execute(UNRECORDED, {"machines": machines, "storages": storages, "paths": paths})
    changed = 0
    for instance_id, rows in groupby(found.all(), key=lambda row: row.instance_id):
        instance = await transitions.try_lock(session, instance_id)
        if instance is None:
            continue
        mounted = [MountedVolume(row.volume_id, row.novita_id, row.region, row.path) for row in rows]
        attachments = [{**each.attachment(instance_id), "is_exclusive": False} for each in mounted]
        await session.execute(insert(VolumeAttachment).values(attachments).on_conflict_do_nothing())
        volumes = [*instance.volumes, *(each.to_json() for each in mounted)]
        await transitions.update(session, instance_id, cause=cause, volumes=volumes)
        changed += 1
    return changed


def _mounts(remote: RemoteInstance) -> list[tuple[str, str]]:
    return [(volume.id, volume.mount_path) for volume in remote.volumes if volume.type == NETWORK and volume.id]
