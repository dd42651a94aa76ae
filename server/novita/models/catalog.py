"""Clusters (regions) and products."""

import re
from collections.abc import Iterable

from server.novita.models.base import model
from server.novita.transport.json_reader import JsonReader

VRAM = re.compile(r"\b(\d+)\s*GB\b", re.IGNORECASE)


@model
class Cluster:
    """A region: `id` goes into requests, `code` ("US-CA-06") is what users see."""

    id: str
    name: str
    code: str
    place: str | None
    gpu_types: tuple[str, ...]
    supports_network_storage: bool
    supports_networks: bool

    @classmethod
    def read(cls, raw: JsonReader) -> "Cluster":
        name = raw.text("name") or raw.required_id("id")
        return cls(
            id=raw.required_id("id"),
            name=name,
            code=region_code(name),
            place=name.partition(" ")[2].strip(" ()") or None,
            gpu_types=raw.texts("availableGpuType"),
            supports_network_storage=raw.flag("supportNetworkStorage"),
            supports_networks=raw.flag("supportInstanceNetwork"),
        )


def region_code(cluster_name: str) -> str:
    """ "US-CA-06" of "US-CA-06 (California)"; names had no place before October 2025."""
    return cluster_name.strip().partition(" ")[0]


def find_cluster(clusters: Iterable[Cluster], region: str) -> Cluster | None:
    """The cluster with this code, full name or id; only the provider's list maps codes to ids (CN-HK-01 is
    cn-hongkong-1)."""
    name = region.strip().casefold()
    for cluster in clusters:
        if name in (cluster.code.casefold(), cluster.name.casefold(), cluster.id.casefold()):
            return cluster
    return None


@model
class MonthlyPrice:
    months: int
    price_per_gpu_e5: int


@model
class Product:
    """A GPU product. `regions` are codes; an empty tuple means every region."""

    id: str
    name: str
    cpu_per_gpu: int | None
    memory_gb_per_gpu: int | None  # of the host; the GPU's own is `vram_gb`
    disk_gb_per_gpu: int | None
    is_deployable: bool
    min_rootfs_gb: int | None
    max_rootfs_gb: int | None
    min_local_storage_gb: int | None
    max_local_storage_gb: int | None
    regions: tuple[str, ...]
    price_per_gpu_hour_e5: int
    spot_price_per_gpu_hour_e5: int | None
    monthly_prices: tuple[MonthlyPrice, ...]
    billing_methods: tuple[str, ...]
    inventory: str | None
    can_buy: bool

    @property
    def vram_gb(self) -> int | None:
        """The GPU's memory, which the provider states only in the name ("RTX 4090 24GB")."""
        match = VRAM.search(self.name)
        return int(match.group(1)[:6]) if match else None

    @classmethod
    def read(cls, raw: JsonReader) -> "Product | None":
        """None for a product without a price: it can't be bought and must not look like the cheapest."""
        billing = raw.texts("billingMethods")
        price = raw.money("price")
        spot = raw.money("spotPrice") or None  # "0" and "" both mean that spot is not offered
        if billing and "spot" not in billing:
            spot = None
        if price is None:
            return None
        return cls(
            id=raw.required_id("id"),
            name=raw.text("name"),
            cpu_per_gpu=raw.integer("cpuPerGpu"),
            memory_gb_per_gpu=raw.integer("memoryPerGpu"),
            disk_gb_per_gpu=raw.integer("diskPerGpu"),
            is_deployable=raw.flag("availableDeploy", default=True),
            min_rootfs_gb=raw.integer("minRootFS"),
            max_rootfs_gb=raw.integer("maxRootFS"),
            min_local_storage_gb=raw.integer("minLocalStorage"),
            max_local_storage_gb=raw.integer("maxLocalStorage"),
            regions=tuple(region_code(name) for name in raw.texts("regions")),
            price_per_gpu_hour_e5=price,
            spot_price_per_gpu_hour_e5=spot,
            monthly_prices=tuple(
                MonthlyPrice(months=months, price_per_gpu_e5=amount)
                for item in raw.objects("monthlyPrice")
                if (months := item.integer("month")) is not None and (amount := item.money("price")) is not None
            ),
            billing_methods=billing,
            inventory=raw.optional_text("inventoryState"),
            can_buy=raw.flag("canBuy", default=True),
        )


@model
class CpuProduct:
    """A product without a GPU; the price is per hour of the whole machine."""

    id: str
    name: str
    cpu_count: int | None
    memory_gb: int | None
    rootfs_gb: int | None
    local_storage_gb: int | None
    is_deployable: bool
    price_per_hour_e5: int

    @classmethod
    def read(cls, raw: JsonReader) -> "CpuProduct | None":
        """None for a product without a price."""
        price = raw.money("price")
        if price is None:
            return None
        return cls(
            id=raw.required_id("id"),
            name=raw.text("name"),
            cpu_count=raw.integer("cpuNum"),
            memory_gb=raw.integer("memorySize"),
            rootfs_gb=raw.integer("rootfsSize"),
            local_storage_gb=raw.integer("localVolumeSize"),
            is_deployable=raw.flag("availableDeploy", default=True),
            price_per_hour_e5=price,
        )

    def as_product(self, regions: tuple[str, ...]) -> Product:
        """The same as a product whose unit is the whole machine. Only on demand: the API offers no other mode."""
        return Product(
            id=self.id,
            name=self.name,
            cpu_per_gpu=self.cpu_count,
            memory_gb_per_gpu=self.memory_gb,
            disk_gb_per_gpu=self.rootfs_gb,
            is_deployable=self.is_deployable,
            min_rootfs_gb=None,
            max_rootfs_gb=self.rootfs_gb,
            min_local_storage_gb=None,
            max_local_storage_gb=self.local_storage_gb,
            regions=regions,
            price_per_gpu_hour_e5=self.price_per_hour_e5,
            spot_price_per_gpu_hour_e5=None,
            monthly_prices=(),
            billing_methods=("onDemand",),
            inventory=None,
            can_buy=self.is_deployable,
        )
