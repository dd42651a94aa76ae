"""The simulated provider's clusters and products, with moving prices and limited stock."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cluster:
    id: str
    name: str
    network_storage: bool = True
    instance_network: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """A product. Prices are 1/100000 USD per GPU-hour before drift."""

    id: str
    name: str
    cpu_per_gpu: int
    memory_per_gpu: int
    price: int
    # 0: not offered as spot.
    spot_price: int
    monthly_price: int
    # Cluster id to the number of GPUs (or CPU machines) there.
    stock: dict[str, int] = field(default_factory=dict[str, int])
    max_root_fs: int = 6144
    is_cpu: bool = False

    @property
    def billing_methods(self) -> list[str]:
        methods = ["onDemand"]
        if self.spot_price:
            methods.append("spot")
        if self.monthly_price:
            methods.append("monthly")
        return methods


CLUSTERS = (
    Cluster("us-ca-6", "US-CA-06 (California)", instance_network=True),
    Cluster("as-sgp-2", "AS-SGP-02 (Singapore)", instance_network=True),
    Cluster("cn-hongkong-1", "CN-HK-01 (Hong Kong)"),
    Cluster("as-in-1", "AS-IN-01 (Mumbai)"),
    Cluster("eu-gb-1", "EU-GB-01 (United Kingdom)", instance_network=True),
    Cluster("oc-au-1", "OC-AU-01 (Sydney)", network_storage=False),
)

GPU_PRODUCTS = (
    Product("4090.16c62g", "RTX 4090 24GB", 16, 62, 35000, 17500, 23000000, {"us-ca-6": 24, "eu-gb-1": 16}),
    Product("26", "RTX 4090 24GB", 16, 60, 39000, 19500, 25500000, {"as-sgp-2": 16}),
    Product("27", "RTX 4090 24GB", 12, 50, 37000, 18500, 24500000, {"cn-hongkong-1": 16}),
    Product("28", "RTX 4090 24GB", 12, 48, 33000, 16000, 0, {"as-in-1": 8}),
    Product("3090.8c30g", "RTX 3090 24GB", 8, 30, 21000, 10500, 14000000, {"cn-hongkong-1": 12, "as-sgp-2": 4}),
    Product("h100.24c200g", "H100 SXM 80GB", 24, 200, 256000, 128000, 168000000, {"us-ca-6": 16, "as-sgp-2": 8}),
    Product("41", "H100 SXM 80GB", 22, 190, 269000, 0, 176000000, {"eu-gb-1": 8}),
    Product("a100.16c120g", "A100 SXM4 80GB", 16, 120, 160000, 80000, 105000000, {"us-ca-6": 16, "as-in-1": 8}),
    Product("44", "A100 SXM4 80GB", 16, 118, 172000, 86000, 0, {"oc-au-1": 8}),
    Product("l40s.16c96g", "L40S 48GB", 16, 96, 99000, 55000, 65000000, {"as-sgp-2": 8, "eu-gb-1": 8}),
    # The same name in the same cluster, cheaper: which one is taken, can be seen.
    Product("l40s.24c128g", "L40S 48GB", 24, 128, 94000, 52000, 62000000, {"eu-gb-1": 4}),
    Product("51", "RTX 6000 Ada 48GB", 14, 92, 77000, 41000, 50000000, {"us-ca-6": 8}),
    Product("52", "RTX 6000 Ada 48GB", 14, 90, 81000, 0, 53000000, {"as-in-1": 4}),
    Product("5090.16c90g", "RTX 5090 32GB", 16, 90, 63000, 33000, 41000000, {"oc-au-1": 4, "us-ca-6": 8}),
    # Out of stock from the start, so that clients see availableDeploy false early.
    Product("h200.24c220g", "H200 SXM 141GB", 24, 220, 350000, 175000, 0, {"eu-gb-1": 0}),
)

CPU_PRODUCTS = (
    Product("cpu.4c8g", "CPU 4C 8GB", 4, 8, 9000, 0, 0, {"us-ca-6": 32, "as-sgp-2": 32}, 200, is_cpu=True),
    Product("cpu.16c32g", "CPU 16C 32GB", 16, 32, 34000, 0, 0, {"us-ca-6": 16}, 500, is_cpu=True),
)

# Simulated seconds between price changes.
PRICE_EPOCH = 60.0


class Catalog:
    """The products with their current prices and free stock."""

    def __init__(self, *, seed: int, drift: float, stock_factor: int = 1) -> None:
        self.clusters = {cluster.id: cluster for cluster in CLUSTERS}
        self.products = {product.id: product for product in (*GPU_PRODUCTS, *CPU_PRODUCTS)}
        self.total = {(p.id, c): n * stock_factor for p in self.products.values() for c, n in p.stock.items()}
        self.taken = dict.fromkeys(self.total, 0)
        self._seed = seed
        self._drift = drift
        # Called when the number of free GPUs changes.
        self.on_stock: Callable[[str, str], None] | None = None
        # Prices that a plan has set, by product and cluster; both modes, without drift.
        self.planned_prices: dict[tuple[str, str], int] = {}

    def add(self, product: Product) -> None:
        self.products[product.id] = product
        for cluster, many in product.stock.items():
            self.total.setdefault((product.id, cluster), many)
            self.taken.setdefault((product.id, cluster), 0)

    def gpu_products(self) -> Iterable[Product]:
        return (product for product in self.products.values() if not product.is_cpu)

    def cpu_products(self) -> Iterable[Product]:
        return (product for product in self.products.values() if product.is_cpu)

    def free(self, product_id: str, cluster_id: str) -> int:
        key = (product_id, cluster_id)
        return max(0, self.total[key] - self.taken[key]) if key in self.total else 0

    def take(self, product_id: str, cluster_id: str, count: int) -> bool:
        """Take that many GPUs if they are free."""
        if self.free(product_id, cluster_id) < count:
            return False
        self.taken[product_id, cluster_id] += count
        self._changed(product_id, cluster_id)
        return True

    def give_back(self, product_id: str, cluster_id: str, count: int) -> None:
        self.taken[product_id, cluster_id] -= count
        self._changed(product_id, cluster_id)

    def _changed(self, product_id: str, cluster_id: str) -> None:
        if self.on_stock is not None:
            self.on_stock(product_id, cluster_id)

    def set_stock(self, product_id: str, cluster_id: str, free: int) -> None:
        """Make `free` GPUs free now, whatever is taken."""
        self.total[product_id, cluster_id] = self.taken[product_id, cluster_id] + free
        self._changed(product_id, cluster_id)

    def price(self, product: Product, mode: str, now: float, cluster_id: str = "") -> int:
        """The current price of one GPU-hour; each mode drifts separately around its base, unless a plan has set it."""
        planned = self.planned_prices.get((product.id, cluster_id))
        if planned is not None:
            return planned
        base = product.spot_price if mode == "spot" else product.price
        if not base or not self._drift:
            return base
        epoch = int(now // PRICE_EPOCH)
        digest = hashlib.blake2b(f"{self._seed}:{product.id}:{mode}:{epoch}".encode(), digest_size=4).digest()
        swing = int.from_bytes(digest, "big") / 0xFFFFFFFF * 2 - 1
        # On-demand prices change far less than spot prices.
        reach = self._drift if mode == "spot" else self._drift / 5
        return round(base * (1 + swing * reach))


def inventory_state(free: int, total: int) -> str:
    if free <= 0:
        return "none"
    if free <= 2 or free * 4 < total:
        return "low"
    return "high" if free * 4 > total * 3 else "normal"
