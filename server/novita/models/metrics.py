"""The utilisation of an instance over time."""

from datetime import datetime

from server.novita.models.base import model
from server.novita.transport.json_reader import JsonReader


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
