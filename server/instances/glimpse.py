"""What may be remembered of a machine: what it is and how it is, without its passwords, variables and log addresses."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from server.novita.wire import Endpoint, RemoteInstance, StatusError


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A machine as the provider showed it at one moment. `asked_at` is before the call, so it is true since then."""

    id: str
    name: str
    status: str
    region: str | None
    product_id: str | None
    product_name: str | None
    gpu_count: int | None
    rootfs_gb: int | None
    image: str | None
    billing_mode: str | None
    price_e5: int | None
    endpoints: tuple[Endpoint, ...]
    status_error: StatusError | None
    spot_status: str | None
    spot_reclaim_at: datetime | None
    created_at: datetime | None
    asked_at: datetime

    @classmethod
    def of(cls, remote: RemoteInstance, *, asked_at: datetime) -> "Glimpse":
        return cls(
            id=remote.id,
            name=remote.name,
            status=remote.status,
            region=remote.region,
            product_id=remote.product_id,
            product_name=remote.product_name,
            gpu_count=remote.gpu_count,
            rootfs_gb=remote.rootfs_gb,
            image=remote.image,
            billing_mode=remote.billing_mode,
            price_e5=remote.price_e5,
            endpoints=remote.endpoints,
            status_error=remote.status_error,
            spot_status=remote.spot_status,
            spot_reclaim_at=remote.spot_reclaim_at,
            created_at=remote.created_at,
            asked_at=asked_at,
        )


def glimpses(remotes: Iterable[RemoteInstance], *, asked_at: datetime) -> tuple[Glimpse, ...]:
    return tuple(Glimpse.of(remote, asked_at=asked_at) for remote in remotes)
