"""Network volumes and private networks."""

from datetime import datetime

from server.novita.models.base import model
from server.novita.models.catalog import region_code
from server.novita.transport.json_reader import JsonReader


@model
class NetworkStorage:
    id: str
    name: str
    size_gb: int | None
    cluster_id: str | None
    region: str | None
    price_e5: int | None

    @classmethod
    def read(cls, raw: JsonReader) -> "NetworkStorage":
        cluster_name = raw.optional_text("clusterName")
        return cls(
            id=raw.required_id("storageId"),
            name=raw.text("storageName"),
            size_gb=raw.integer("storageSize"),
            cluster_id=raw.optional_text("clusterId"),
            region=region_code(cluster_name) if cluster_name else None,
            price_e5=raw.money("price"),
        )


@model
class NetworkAddress:
    instance_id: str
    ip: str


@model
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
    def read(cls, raw: JsonReader) -> "Network":
        state = raw.nested("state")
        return cls(
            id=raw.required_id("Id", "id"),
            name=raw.text("name"),
            state=state.text("state"),
            error=state.optional_text("error"),
            segment=raw.optional_text("segment"),
            cluster_id=raw.optional_text("clusterId"),
            addresses=tuple(NetworkAddress(item.text("Id"), item.text("Ip")) for item in raw.objects("Addresses")),
            created_at=raw.time("createTime"),
        )
