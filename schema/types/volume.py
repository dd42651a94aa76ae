"""Types of network volumes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.loaded import Lookup
from schema.pagination import CountedConnection, Edge, ListConnection
from schema.types.money import Money
from schema.types.operation import HELP
from server.conversion import convert
from server.db import tables
from server.error_codes import help_of
from server.volumes.price import price_per_hour_e5

if TYPE_CHECKING:
    from schema.types.instance import Instance


class VolumeStatus(StrEnum):
    """The statuses of rows that are shown; one of a newer version becomes OTHER."""

    CREATING = "CREATING"
    AVAILABLE = "AVAILABLE"
    DELETING = "DELETING"
    FAILED = "FAILED"
    OTHER = "OTHER"


described(
    VolumeStatus,
    description="Status of a network volume.",
    values={
        "CREATING": "Being created at the provider. It may already exist and be billed.",
        "AVAILABLE": "New instances can have it.",
        "DELETING": "Being deleted at the provider; billed until it is gone.",
        "FAILED": "It was not created, or is gone at the provider: see `failure`.",
        "OTHER": "A status that this server does not know.",
    },
)


@strawberry.type(description="Why a volume failed, or why its deletion takes so long.")
class VolumeFailure:
    code: str = strawberry.field(description="Stable error code, such as GONE_AT_PROVIDER.")
    message: str = strawberry.field(description="Readable message.")

    @strawberry.field(description=HELP)
    def help(self) -> str | None:
        return help_of(self.code)


def _instances(rows: Sequence[tables.InstanceRow]) -> "list[Instance]":
    from schema.lazy_instance import LazyInstance  # noqa: PLC0415 - the two types refer to each other

    return [LazyInstance(row) for row in rows]


HOLDERS = Lookup(attrgetter("volume_holders"), attrgetter("row_id"), _instances)


@strawberry.type(description="A network volume: a disk in one region that outlives the instances that mount it.")
class Volume(Node):
    row_id: strawberry.Private[UUID]
    novita_id: str | None = strawberry.field(description="The provider's id, once created there.")
    name: str = strawberry.field(description="Name, unique among the project's volumes.")
    region: str = strawberry.field(description="Region code, such as AS-SGP-02.")
    size_gb: int = strawberry.field(description="Size in GB.")
    price_per_hour: Money | None = strawberry.field(
        description="Price per hour of the whole volume; null while the provider has not said it."
    )
    status: VolumeStatus = strawberry.field(description="Status.")
    failure: VolumeFailure | None = strawberry.field(
        description="Why it failed, or why its deletion takes so long; else null."
    )
    created_at: datetime = strawberry.field(description="Creation time.")
    updated_at: datetime = strawberry.field(description="Time of the last change.")

    @strawberry.field(description="Instances that have it, also stopped ones.", metadata=HOLDERS.metadata)
    async def attached_to(self, info: Info) -> list[Annotated["Instance", strawberry.lazy("schema.types.instance")]]:
        return await HOLDERS.load(self, info)

    @classmethod
    def of(cls, row: tables.VolumeLike) -> "Volume":
        failure = None
        if row.failure_code is not None:
            failure = VolumeFailure(code=row.failure_code, message=row.failure_message or "")
        return convert(
            cls,
            row,
            row_id=row.id,
            id=strawberry.ID(ids.format_id(ids.VOLUME, row.id)),
            price_per_hour=Money.of(price_per_hour_e5(row.price_e5, row.size_gb)),
            status=VolumeStatus(row.status) if row.status in set(VolumeStatus) else VolumeStatus.OTHER,
            failure=failure,
        )

    @classmethod
    async def load(cls, info: Info, id: str) -> "Volume | None":
        row = await info.context.loaders.volume.load(ids.parse(ids.VOLUME, id))
        return None if row is None else cls.of(row)


@strawberry.type(description="A network volume of an instance.")
class InstanceVolume:
    volume_id: strawberry.ID = strawberry.field(description="Id of the volume; `node` reads it.")
    mount_path: str = strawberry.field(description="Where it is mounted.")

    @classmethod
    def list_of(cls, volumes: Sequence[Mapping[str, Any]]) -> "list[InstanceVolume]":
        return [
            cls(
                volume_id=strawberry.ID(ids.format_id(ids.VOLUME, UUID(each["volume_id"]))),
                mount_path=each["mount_path"],
            )
            for each in volumes
        ]


@strawberry.type(description="A volume of the provider account that no project has. It is billed to the account.")
class UnlinkedVolume:
    novita_id: str = strawberry.field(description="The provider's id; `adoptVolume` takes it.")
    name: str = strawberry.field(description="Its name at the provider.")
    region: str | None = strawberry.field(description="Region code.")
    size_gb: int | None = strawberry.field(description="Size in GB.")
    price_per_hour: Money | None = strawberry.field(description="Price per hour of the whole volume.")


@strawberry.type(description="A volume with its cursor.")
class VolumeEdge(Edge[Volume]):
    pass


@strawberry.type(description="A page of volumes.")
class VolumeConnection(CountedConnection[VolumeEdge, Volume]):
    pass


@strawberry.type(description="A volume without a project, with its cursor.")
class UnlinkedVolumeEdge(Edge[UnlinkedVolume]):
    pass


@strawberry.type(description="A page of volumes without a project.")
class UnlinkedVolumeConnection(ListConnection[UnlinkedVolumeEdge, UnlinkedVolume]):
    pass
