"""Regions and products."""

from server.novita.models.base import list_of
from server.novita.models.catalog import Cluster, CpuProduct, Product
from server.novita.transport.concurrency import CallPriority
from server.novita.transport.request import ApiCalls, get


class CatalogCalls(ApiCalls):
    async def clusters(self, *, priority: CallPriority = CallPriority.USER) -> list[Cluster]:
        return await self._transport.call(get("/clusters"), list_of(Cluster.read, "data"), priority=priority)

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
        priority: CallPriority = CallPriority.USER,
    ) -> list[Product]:
        """Matching products. `billing` is onDemand, monthly or spot; without it the provider assumes onDemand."""
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
        return await self._transport.call(call, list_of(Product.read, "data"), priority=priority)

    async def cpu_products(
        self,
        *,
        cluster_id: str | None = None,
        product_name: str | None = None,
        priority: CallPriority = CallPriority.USER,
    ) -> list[CpuProduct]:
        call = get("/cpu/products", clusterId=cluster_id, productName=product_name)
        return await self._transport.call(call, list_of(CpuProduct.read, "data"), priority=priority)
