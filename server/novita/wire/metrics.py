"""How busy an instance is."""

from datetime import datetime

from server.novita.fields import Fields
from server.novita.wire.value import value


@value
class Sample:
    at: datetime
    percent: float


@value
class GpuSeries:
    average: tuple[Sample, ...]
    by_gpu: dict[str, tuple[Sample, ...]]


@value
class InstanceMetrics:
    cpu: tuple[Sample, ...]
    memory: tuple[Sample, ...]
    root_disk: tuple[Sample, ...]
    gpu: GpuSeries
    gpu_memory: GpuSeries

    @classmethod
    def read(cls, raw: Fields) -> "InstanceMetrics":
        return cls(
            cpu=_samples(raw, "cpuUtilization"),
            memory=_samples(raw, "memUtilization"),
            root_disk=_samples(raw, "rootDiskUtilization"),
            gpu=_gpu_series(raw.within("gpuUtilization")),
            gpu_memory=_gpu_series(raw.within("gpuMemUtilization")),
        )


def _samples(raw: Fields, name: str) -> tuple[Sample, ...]:
    return tuple(
        Sample(at, percent)
        for item in raw.objects(name)
        if (at := item.time("timestamp")) is not None and (percent := item.number("value")) is not None
    )


def _gpu_series(raw: Fields) -> GpuSeries:
    return GpuSeries(
        average=_samples(raw, "avg"),
        by_gpu={item.text("gpuId"): _samples(item, "items") for item in raw.objects("gpuIds")},
    )
