"""Accepts requests about network volumes: create, change, delete, adopt."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import exists, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.account.objects import Account, call
from server.auth.caller import Caller
from server.clock import new_id
from server.db.database import Database
from server.db.tables import Instance, Project, Volume, VolumeAttachment
from server.enums import InstanceStatus, VolumeStatus
from server.errors import Invalid, NotFound, Problem, ProviderNotFound, Refused
from server.events.event import EventType
from server.idempotency import IdempotentRequest, create_once, key_problems
from server.instances.markers import marker_of, novita_name, project_part, project_part_of
from server.novita.models import NetworkStorage, find_cluster
from server.queue.enqueue import enqueue
from server.queue.kinds import CreateVolume, DeleteVolume
from server.volumes import rows
from server.volumes.draft import INVALID, name_problems, size_problems

ID_PATH = ("input", "id")
NOVITA_ID_PATH = ("input", "novitaId")


async def create_volume(
    account: Account, *, name: str, region: str, size_gb: int, key: str | None, by: Caller
) -> tuple[Volume | None, bool]:
    """The accepted volume, which a worker creates, and whether the same key was accepted before. None if it was
    deleted since."""
    _refuse([*key_problems(key), *name_problems(name), *size_problems(size_gb)])
    cluster = find_cluster(await account.catalog.regions(), region)
    if cluster is None:
        raise Invalid([Problem("INVALID_REGION", f"The provider has no region {region}.", ("input", "region"))])
    if not cluster.supports_network_storage:
        raise Invalid([Problem("VOLUMES_NOT_SUPPORTED", f"{cluster.code} has no volumes.", ("input", "region"))])
    fields = {"name": name, "region": cluster.code, "size_gb": size_gb}
    request = IdempotentRequest.of(by, key, "createVolume", fields)

    async def write(session: AsyncSession, volume_id: UUID) -> Volume:
        volume = Volume(
            id=volume_id,
            project_id=by.project_id,
            cluster_id=cluster.id,
            status=VolumeStatus.CREATING,
            created_by=by.token_id,
            **fields,
        )
        await rows.insert(session, volume, EventType.VOLUME_CREATING, caused_by=by.token_id)
        await enqueue_create(session, volume, request.digest)
        return volume

    try:
        created = await create_once(account.database, request, Volume, write)
    except IntegrityError as error:
        raise _name_taken(error) from None
    volume = created.row
    is_deleted = volume is None or volume.status == VolumeStatus.DELETED
    return None if is_deleted else volume, created.replayed


async def update_volume(
    account: Account, volume_id: UUID, *, name: str | None, size_gb: int | None, by: Caller
) -> Volume:
    """Rename or enlarge it at the provider; repeating the call changes nothing, so a lost response is harmless."""
    _refuse([*(name_problems(name) if name is not None else ()), *(() if size_gb is None else size_problems(size_gb))])
    if name is None and size_gb is None:
        raise Invalid([Problem(INVALID, "Give a name, a size, or both.", ("input",))])
    async with account.database.read() as session:
        volume = await _find(session, volume_id, by)
        if name is not None and await _is_name_taken(session, volume, name):
            raise _taken()
    _refuse_unless_available(volume)
    if size_gb is not None and size_gb < volume.size_gb:
        message = f"A volume only grows; it has {volume.size_gb} GB."
        raise Invalid([Problem(INVALID, message, ("input", "sizeGb"))])
    new_name, new_size = name or volume.name, size_gb or volume.size_gb
    if account.is_dry_run or (new_name, new_size) == (volume.name, volume.size_gb):
        return volume
    account.live_reads.take(by)
    shown_name = new_name if volume.marker is None else novita_name(new_name, volume.marker)
    novita_id = str(volume.novita_id)
    try:
        await call(lambda: account.novita.update_network_storage(novita_id, name=shown_name, size_gb=new_size))
    except ProviderNotFound:
        raise Refused("VOLUME_NOT_AVAILABLE", "The provider does not have this volume any more.", ID_PATH) from None
    try:
        async with account.database.write() as session:
            locked = await rows.lock(session, volume_id)
            # Of two that enlarge it at once, the larger size counts, as at the provider.
            size = max(new_size, locked.size_gb if locked else new_size)
            return await rows.change(
                session,
                volume_id,
                EventType.VOLUME_CHANGED,
                {"name": new_name, "size_gb": size},
                caused_by=by.token_id,
            )
    except IntegrityError as error:
        raise _name_taken(error) from None


async def delete_volume(database: Database, volume_id: UUID, *, by: Caller) -> Volume:
    """Accept the delete; a worker carries it out, however long that takes. Repeating it is harmless."""
    async with database.write() as session:
        locked = await rows.lock(session, volume_id)
        volume = await _find(session, volume_id, by)
        if locked is None or volume.status == VolumeStatus.DELETING:
            return volume
        holder = await _holder(session, volume_id)
        if holder is not None:
            message = f"The instance {holder} has it; delete that one first."
            raise Refused("VOLUME_IN_USE", message, ID_PATH)
        deleting = dict.fromkeys(("failure_code", "failure_message", "missing_since"))
        volume = await rows.change(
            session,
            volume_id,
            EventType.VOLUME_DELETING,
            {"status": VolumeStatus.DELETING, **deleting},
            caused_by=by.token_id,
        )
        await enqueue_delete(session, volume)
        return volume


async def adopt_volume(account: Account, novita_id: str, *, name: str | None, by: Caller) -> Volume:
    """Write a row for a volume of the account that no project has; nothing is changed at the provider."""
    _refuse(list(name_problems(name)) if name is not None else [])
    found = next((each for each in await unlinked_volumes(account, by=by) if each.id == novita_id), None)
    if found is None:
        raise NotFound("volume", NOVITA_ID_PATH)
    cluster = find_cluster(await account.catalog.regions(), found.cluster_id or "")
    volume = Volume(
        id=new_id(),
        project_id=by.project_id,
        name=name or found.name or found.id,
        region=found.region or (cluster.code if cluster else ""),
        cluster_id=found.cluster_id or "",
        size_gb=found.size_gb or 0,
        status=VolumeStatus.AVAILABLE,
        novita_id=found.id,
        marker=marker_of(found.name),
        price_e5=found.price_e5,
        created_by=by.token_id,
    )
    try:
        async with account.database.write() as session:
            await rows.insert(session, volume, EventType.VOLUME_AVAILABLE, caused_by=by.token_id)
            return volume
    except IntegrityError as error:
        if rows.NAME_INDEX not in str(error.orig):
            raise Refused("ALREADY_ADOPTED", "Another caller has just adopted it.", NOVITA_ID_PATH) from None
        raise _taken() from None


async def unlinked_volumes(account: Account, *, by: Caller) -> list[NetworkStorage]:
    """Volumes of the account that no project has, without those with the marker of another project."""
    account.live_reads.take(by)
    listed = await account.novita.all_network_storages()
    async with account.database.read() as session:
        known = await session.execute(
            select(Volume.novita_id, Volume.marker).where(Volume.status != VolumeStatus.DELETED)
        )
        ids: set[str] = set()
        markers: set[str] = set()
        for novita_id, marker in known:
            ids.update([novita_id] if novita_id else [])
            markers.update([marker] if marker else [])
        projects = {project_part(each): each for each in (await session.execute(select(Project.id))).scalars()}

    def is_free(storage: NetworkStorage) -> bool:
        marker = marker_of(storage.name)
        owner = projects.get(project_part_of(marker) or "")
        return storage.id not in ids and marker not in markers and owner in (None, by.project_id)

    return [each for each in listed if is_free(each)]


async def enqueue_create(session: AsyncSession, volume: Volume, request: str | None) -> None:
    work = CreateVolume(volume.id, request)
    await enqueue(session, work, project_id=volume.project_id, unique_key=f"create volume {volume.id}")


async def enqueue_delete(session: AsyncSession, volume: Volume) -> None:
    work = DeleteVolume(volume.id)
    await enqueue(session, work, project_id=volume.project_id, unique_key=f"delete volume {volume.id}")


async def _find(session: AsyncSession, volume_id: UUID, by: Caller) -> Volume:
    volume = await session.get(Volume, volume_id)
    if volume is None or volume.project_id != by.project_id or volume.status == VolumeStatus.DELETED:
        raise NotFound("volume", ID_PATH)
    return volume


async def _holder(session: AsyncSession, volume_id: UUID) -> str | None:
    """The name of an instance that has it."""
    return await session.scalar(
        select(Instance.name)
        .join(VolumeAttachment, VolumeAttachment.instance_id == Instance.id)
        .where(VolumeAttachment.volume_id == volume_id, Instance.status != InstanceStatus.DELETED)
        .limit(1)
    )


async def _is_name_taken(session: AsyncSession, volume: Volume, name: str) -> bool:
    return bool(
        await session.scalar(
            select(
                exists().where(
                    Volume.project_id == volume.project_id,
                    Volume.name == name,
                    Volume.id != volume.id,
                    Volume.status != VolumeStatus.DELETED,
                )
            )
        )
    )


def _refuse_unless_available(volume: Volume) -> None:
    if volume.status != VolumeStatus.AVAILABLE:
        raise Refused("VOLUME_NOT_AVAILABLE", f"The volume is {volume.status}; it must be AVAILABLE.", ID_PATH)


def _refuse(problems: Iterable[Problem]) -> None:
    found = list(problems)
    if found:
        raise Invalid(found)


def _name_taken(error: IntegrityError) -> Exception:
    return _taken() if rows.NAME_INDEX in str(error.orig) else error


def _taken() -> Invalid:
    message = "Another volume has this name; choose another or delete that one first."
    return Invalid([Problem("VOLUME_NAME_TAKEN", message, ("input", "name"))])
