"""Background jobs of the provider, and images fetched ahead of time."""

from dataclasses import field
from datetime import datetime

from server.novita.fields import Fields
from server.novita.wire.value import value


@value
class Job:
    id: str
    type: str
    state: str
    error: str | None
    log_address: str | None = field(repr=False)
    instance_id: str | None
    created_at: datetime | None

    @classmethod
    def read(cls, raw: Fields) -> "Job":
        state = raw.within("state")
        return cls(
            id=raw.identity("Id", "id"),
            type=raw.text("type"),
            state=state.text("state"),
            error=state.maybe("errorMessage") or state.maybe("message") or state.maybe("error"),
            log_address=raw.maybe("logAddress"),
            instance_id=raw.maybe("instanceId"),
            created_at=raw.time("createdAt"),
        )


@value
class PrewarmQuota:
    used: int | None
    limit: int | None
    gb_per_image: int | None

    @classmethod
    def read(cls, raw: Fields) -> "PrewarmQuota":
        return cls(used=raw.integer("total"), limit=raw.integer("limit"), gb_per_image=raw.integer("perImageSize"))


@value
class Prewarm:
    """An image being fetched to a region's nodes; `state` is capitalised, unlike everything else."""

    id: str
    image: str
    cluster_id: str | None
    product_ids: tuple[str, ...]
    state: str
    note: str | None
    created_at: datetime | None

    @classmethod
    def read(cls, raw: Fields) -> "Prewarm":
        return cls(
            id=raw.identity("id", "Id"),
            image=raw.text("imageUrl"),
            cluster_id=raw.maybe("clusterId"),
            product_ids=raw.texts("productIds"),
            state=raw.text("state"),
            note=raw.maybe("note"),
            created_at=raw.time("createdAt") or raw.time("createTime"),
        )
