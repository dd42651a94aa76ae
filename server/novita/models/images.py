"""The provider's jobs, image prewarming and metrics."""

from dataclasses import field
from datetime import datetime

from server.novita.models.base import model
from server.novita.transport.json_reader import JsonReader


@model
class Job:
    id: str
    type: str
    state: str
    error: str | None
    log_address: str | None = field(repr=False)
    instance_id: str | None
    created_at: datetime | None

    @classmethod
    def read(cls, raw: JsonReader) -> "Job":
        state = raw.nested("state")
        return cls(
            id=raw.required_id("Id", "id"),
            type=raw.text("type"),
            state=state.text("state"),
            error=state.optional_text("errorMessage") or state.optional_text("message") or state.optional_text("error"),
            log_address=raw.optional_text("logAddress"),
            instance_id=raw.optional_text("instanceId"),
            created_at=raw.time("createdAt"),
        )


@model
class PrewarmQuota:
    used: int | None
    limit: int | None
    gb_per_image: int | None

    @classmethod
    def read(cls, raw: JsonReader) -> "PrewarmQuota":
        return cls(used=raw.integer("total"), limit=raw.integer("limit"), gb_per_image=raw.integer("perImageSize"))


@model
class Prewarm:
    """An image being fetched to a region's nodes; `state` is capitalised, unlike other states."""

    id: str
    image: str
    cluster_id: str | None
    product_ids: tuple[str, ...]
    state: str
    note: str | None
    created_at: datetime | None

    @property
    def name(self) -> str:
        """Tasks have no name: they are told apart by region and image."""
        return prewarm_name(self.cluster_id or "", self.image)

    @classmethod
    def read(cls, raw: JsonReader) -> "Prewarm":
        return cls(
            id=raw.required_id("id", "Id"),
            image=raw.text("imageUrl"),
            cluster_id=raw.optional_text("clusterId"),
            product_ids=raw.texts("productIds") or tuple(each.text("productId") for each in raw.objects("products")),
            state=raw.text("state"),
            note=raw.optional_text("note"),
            created_at=raw.time("createdAt") or raw.time("createTime"),
        )


def prewarm_name(cluster_id: str, image: str) -> str:
    return f"{cluster_id} {image}"


@model
class Sample:
    at: datetime
    percent: float


@model
class GpuSeries:
    average: tuple[Sample, ...]
    by_gpu: dict[str, tuple[Sample, ...]]


@model
class InstanceMetrics:
    cpu: tuple[Sample, ...]
    memory: tuple[Sample, ...]
    root_disk: tuple[Sample, ...]
    gpu: GpuSeries
    gpu_memory: GpuSeries

    @classmethod
    def read(cls, raw: JsonReader) -> "InstanceMetrics":
        return cls(
            cpu=_samples(raw, "cpuUtilization"),
            memory=_samples(raw, "memUtilization"),
            root_disk=_samples(raw, "rootDiskUtilization"),
            gpu=_gpu_series(raw.nested("gpuUtilization")),
            gpu_memory=_gpu_series(raw.nested("gpuMemUtilization")),
        )


def _samples(raw: JsonReader, name: str) -> tuple[Sample, ...]:
    return tuple(
        Sample(at, percent)
        for item in raw.objects(name)
        if (at := item.time("timestamp")) is not None and (percent := item.number("value")) is not None
    )


def _gpu_series(raw: JsonReader) -> GpuSeries:
    return GpuSeries(
        average=_samples(raw, "avg"),
        by_gpu={item.text("gpuId"): _samples(item, "items") for item in raw.objects("gpuIds")},
    )
