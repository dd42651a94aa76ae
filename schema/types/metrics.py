"""Types of an instance's metrics."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import strawberry


class SampleLike(Protocol):
    """A sample of the provider."""

    @property
    def at(self) -> datetime: ...
    @property
    def percent(self) -> float: ...


@strawberry.type(description="Utilisation at one time.")
class MetricPoint:
    at: datetime = strawberry.field(description="Time of the sample.")
    percent: float = strawberry.field(description="0 to 100.")

    @classmethod
    def all_of(cls, samples: Sequence[SampleLike]) -> "list[MetricPoint]":
        return [cls(at=each.at, percent=each.percent) for each in samples]


@strawberry.type(description="Utilisation of one GPU.")
class GpuMetrics:
    gpu_id: str = strawberry.field(description="Number of the GPU, as the provider names it.")
    points: list[MetricPoint] = strawberry.field(description="Samples, oldest first.")

    @classmethod
    def all_of(cls, by_gpu: Mapping[str, Sequence[SampleLike]]) -> "list[GpuMetrics]":
        return [cls(gpu_id=gpu, points=MetricPoint.all_of(samples)) for gpu, samples in sorted(by_gpu.items())]


@strawberry.type(description="Utilisation of an instance, as the provider reports it: about a minute late.")
class InstanceMetrics:
    gpu: list[GpuMetrics] = strawberry.field(description="GPUs.")
    gpu_memory: list[GpuMetrics] = strawberry.field(description="Memory of the GPUs.")
    cpu: list[MetricPoint] = strawberry.field(description="CPU.")
    memory: list[MetricPoint] = strawberry.field(description="Memory.")
    disk: list[MetricPoint] = strawberry.field(description="Root disk.")
