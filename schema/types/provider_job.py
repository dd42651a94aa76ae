"""Types of the provider's own jobs."""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.pagination import Edge, ListConnection
from server.account.provider_jobs import OwnedJob, find_job

if TYPE_CHECKING:
    from schema.types.instance import Instance


class ProviderJobKind(StrEnum):
    """The provider's words; OTHER stands for those that are not known."""

    SAVE_IMAGE = "saveImage"
    MIGRATE = "instanceMigrate"
    AUTO_MIGRATE = "autoInstanceMigrate"
    OTHER = ""


class ProviderJobStatus(StrEnum):
    """The provider's words; OTHER stands for those that are not known."""

    PULLING = "pulling"
    RUNNING = "running"
    SUCCEEDED = "success"
    FAILED = "fail"
    INTERRUPTED = "break"
    OTHER = ""


described(
    ProviderJobKind,
    description="Kind of a job of the provider.",
    values={
        "SAVE_IMAGE": "Saves a machine as an image.",
        "MIGRATE": "Moves a machine to another node.",
        "AUTO_MIGRATE": "Moves a machine by the provider's own decision.",
        "OTHER": "A kind that this server does not know.",
    },
)
described(
    ProviderJobStatus,
    description="Status of a job of the provider.",
    values={
        "PULLING": "Being prepared.",
        "RUNNING": "In progress.",
        "SUCCEEDED": "Done.",
        "FAILED": "Failed: see `error`.",
        "INTERRUPTED": "Interrupted, for example by cancelProviderJob.",
        "OTHER": "A status that this server does not know.",
    },
)


@strawberry.type(description="A job that the provider runs for a machine, read live.")
class ProviderJob(Node):
    instance_row_id: strawberry.Private[UUID]
    novita_id: str = strawberry.field(description="The provider's id.")
    kind: ProviderJobKind = strawberry.field(description="Kind.")
    status: ProviderJobStatus = strawberry.field(description="Status.")
    error: str | None = strawberry.field(description="Why it failed, in the provider's words.")
    created_at: datetime | None = strawberry.field(description="Creation time.")

    @strawberry.field(description="The instance whose machine it is about.")
    async def instance(self, info: Info) -> Annotated["Instance", strawberry.lazy("schema.types.instance")] | None:
        from schema.types.instance import Instance  # noqa: PLC0415 - the types refer to each other

        row = await info.context.loaders.instance.load(self.instance_row_id)
        return None if row is None else Instance.of(row)

    @classmethod
    def of(cls, owned: OwnedJob) -> "ProviderJob":
        job = owned.job
        return cls(
            id=strawberry.ID(ids.format_provider_id(ids.PROVIDER_JOB, job.id)),
            instance_row_id=owned.instance_id,
            novita_id=job.id,
            kind=next((each for each in ProviderJobKind if each.value == job.type), ProviderJobKind.OTHER),
            status=next((each for each in ProviderJobStatus if each.value == job.state), ProviderJobStatus.OTHER),
            error=job.error,
            created_at=job.created_at,
        )

    @classmethod
    async def load(cls, info: Info, id: str) -> "ProviderJob | None":
        """By our id or the provider's, if it is about a machine of the project."""
        job_id = ids.provider_id(ids.PROVIDER_JOB, id)
        found = await find_job(info.context.services.account, job_id, by=info.context.caller)
        return None if found is None else cls.of(found)


@strawberry.type(description="A job of the provider with its cursor.")
class ProviderJobEdge(Edge[ProviderJob]):
    pass


@strawberry.type(description="A page of jobs of the provider.")
class ProviderJobConnection(ListConnection[ProviderJobEdge, ProviderJob]):
    pass
