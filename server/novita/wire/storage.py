"""Network volumes and private networks."""

from datetime import datetime

from server.novita.fields import Fields
from server.novita.wire.catalog import region_code
from server.novita.wire.value import value


@value
class NetworkStorage:
    id: str
    name: str
    size_gb: int | None
    cluster_id: str | None
    region: str | None
    price_e5: int | None

    @classmethod
    def read(cls, raw: Fields) -> "NetworkStorage":
        cluster_name = raw.maybe("clusterName")
        return cls(
            id=raw.identity("storageId"),
            name=raw.text("storageName"),
            size_gb=raw.integer("storageSize"),
            cluster_id=raw.maybe("clusterId"),
            region=region_code(cluster_name) if cluster_name else None,
            price_e5=raw.money("price"),
        )


@value
class NetworkAddress:
    instance_id: str
    ip: str


@value
class Network:
    id: str
    name: str
    state: str
    error: str | None
    segment: str | None
    cluster_id: str | None
    addresses: tuple[NetworkAddress, ...]
    created_at: datetime | None

    @classmethod
    def read(cls, raw: Fields) -> "Network":
        state = raw.within("state")
        return cls(
            id=raw.identity("Id", "id"),
            name=raw.text("name"),
            state=state.text("state"),
            error=state.maybe("error"),
            segment=raw.maybe("segment"),
            cluster_id=raw.maybe("clusterId"),
            addresses=tuple(NetworkAddress(item.text("Id"), item.text("Ip")) for item in raw.objects("Addresses")),
            created_at=raw.time("createTime"),
        )
