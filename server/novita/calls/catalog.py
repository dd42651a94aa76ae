"""Regions and products."""

from server.novita.call import get
from server.novita.calls.base import Calls
from server.novita.fields import Fields
from server.novita.priority import Priority
from server.novita.wire.catalog import Cluster, CpuProduct, Product


class CatalogCalls(Calls):
    async def clusters(self, *, priority: Priority = Priority.USER) -> list[Cluster]:
        return await self._caller.call(get("/clusters"), _clusters, priority=priority)

    async def products(
        self,
        *,
        cluster_id: str | None = None,
        gpu_count: int | None = None,
        product_name: str | None = None,
        billing: str | None = None,
        min_cpu_per_gpu: int | None = None,
        min_memory_gb_per_gpu: int | None = None,
        min_rootfs_gb: int | None = None,
        priority: Priority = Priority.USER,
    ) -> list[Product]:
        """Products that fit. `billing` is onDemand, monthly or spot; without it the provider assumes onDemand, so spot
        products have to be asked for by name."""
        call = get(
            "/products",
            clusterId=cluster_id,
            gpuNum=gpu_count,
            productName=product_name,
            billingMethod=billing,
            minCpuPerGpu=min_cpu_per_gpu,
            minMemoryPerGpu=min_memory_gb_per_gpu,
            minRootFSSize=min_rootfs_gb,
        )
        return await self._caller.call(call, _products, priority=priority)

    async def cpu_products(
        self, *, cluster_id: str | None = None, product_name: str | None = None, priority: Priority = Priority.USER
    ) -> list[CpuProduct]:
        call = get("/cpu/products", clusterId=cluster_id, productName=product_name)
        return await self._caller.call(call, _cpu_products, priority=priority)


def _clusters(raw: Fields) -> list[Cluster]:
    return [Cluster.read(item) for item in raw.listed("data")]


def _products(raw: Fields) -> list[Product]:
    return [product for item in raw.listed("data") if (product := Product.read(item)) is not None]


def _cpu_products(raw: Fields) -> list[CpuProduct]:
    return [product for item in raw.listed("data") if (product := CpuProduct.read(item)) is not None]
