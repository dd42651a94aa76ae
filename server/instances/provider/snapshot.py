"""A provider instance without its secrets (passwords, variables, log addresses); safe to cache."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from server.conversion import convert
from server.novita.models import Endpoint, RemoteInstance, StatusError


@dataclass(frozen=True, slots=True)
class ProviderSnapshot:
    """A machine at one moment. `asked_at` is before the call, so the state is at least that new."""

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
    last_started_at: datetime | None = None
    last_stopped_at: datetime | None = None

    @classmethod
    def of(cls, remote: RemoteInstance, *, asked_at: datetime) -> "ProviderSnapshot":
        return convert(cls, remote, asked_at=asked_at)


def snapshots(remotes: Iterable[RemoteInstance], *, asked_at: datetime) -> tuple[ProviderSnapshot, ...]:
    return tuple(ProviderSnapshot.of(remote, asked_at=asked_at) for remote in remotes)
