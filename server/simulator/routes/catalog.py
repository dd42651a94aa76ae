"""GET /clusters, /products and /cpu/products."""

import orjson

from server.simulator.catalog import Product, inventory_state
from server.simulator.requests import ApiRequest, JsonObject, bad_param
from server.simulator.world import World


def clusters(world: World, request: ApiRequest) -> bytes:
    shown: list[JsonObject] = []
    for cluster in world.catalog.clusters.values():
        names = {p.name for p in world.catalog.gpu_products() if world.catalog.free(p.id, cluster.id) > 0}
        shown.append(
            {
                "id": cluster.id,
                "name": cluster.name,
                "availableGpuType": sorted(names),
                "supportNetworkStorage": cluster.network_storage,
                "supportInstanceNetwork": cluster.instance_network,
            }
        )
    return orjson.dumps({"data": shown})


def products(world: World, request: ApiRequest) -> bytes:
    method = request.query("billingMethod") or "onDemand"
    if method not in ("onDemand", "monthly", "spot"):
        raise bad_param("billingMethod must be onDemand, monthly or spot", "billingMethod")
    gpu_num = request.query_int("gpuNum", 0, most=8)
    least_cpu = request.query_int("minCpuPerGpu")
    least_memory = request.query_int("minMemoryPerGpu")
    least_root = request.query_int("minRootFSSize")
    cluster_id = _short(request, "clusterId")
    needle = _short(request, "productName").lower()
    shown = [
        _product(world, product, cluster_id, gpu_num or 1)
        for product in world.catalog.gpu_products()
        if method in product.billing_methods
        and needle in product.name.lower()
        and (not cluster_id or cluster_id in product.stock)
        and product.cpu_per_gpu >= least_cpu
        and product.memory_per_gpu >= least_memory
        and product.max_root_fs >= least_root
    ]
    return orjson.dumps({"data": shown})


def cpu_products(world: World, request: ApiRequest) -> bytes:
    cluster_id = _short(request, "clusterId")
    needle = _short(request, "productName").lower()
    now = world.clock.now()
    shown: list[JsonObject] = [
        {
            "id": product.id,
            "name": product.name,
            "cpuNum": product.cpu_per_gpu,
            "memorySize": product.memory_per_gpu,
            "rootfsSize": product.max_root_fs,
            "localVolumeSize": 0,
            "availableDeploy": _best_free(world, product, cluster_id) > 0,
            "price": str(world.catalog.price(product, "onDemand", now)),
        }
        for product in world.catalog.cpu_products()
        if needle in product.name.lower() and (not cluster_id or cluster_id in product.stock)
    ]
    return orjson.dumps({"data": shown})


def _product(world: World, product: Product, cluster_id: str, gpu_num: int) -> JsonObject:
    now = world.clock.now()
    free = _best_free(world, product, cluster_id)
    total = max(world.catalog.total[product.id, each] for each in _places(product, cluster_id))
    monthly = [{"price": str(product.monthly_price), "month": 1}] if product.monthly_price else []
    return {
        "id": product.id,
        "name": product.name,
        "cpuPerGpu": product.cpu_per_gpu,
        "memoryPerGpu": product.memory_per_gpu,
        "diskPerGpu": product.max_root_fs,
        "availableDeploy": free >= gpu_num,
        "minRootFS": 10,
        "maxRootFS": product.max_root_fs,
        "minLocalStorage": 0,
        "maxLocalStorage": 0,
        "regions": [world.catalog.clusters[each].name for each in product.stock],
        "price": str(world.catalog.price(product, "onDemand", now, cluster_id)),
        "spotPrice": str(world.catalog.price(product, "spot", now, cluster_id)),
        "monthlyPrice": monthly,
        "billingMethods": product.billing_methods,
        "inventoryState": inventory_state(free, total),
        "canBuy": free >= gpu_num,
    }


def _best_free(world: World, product: Product, cluster_id: str) -> int:
    return max(world.catalog.free(product.id, each) for each in _places(product, cluster_id))


def _places(product: Product, cluster_id: str) -> list[str]:
    return [cluster_id] if cluster_id else list(product.stock)


def _short(request: ApiRequest, name: str) -> str:
    value = request.query(name)
    if len(value) > 255:
        raise bad_param(f"{name} must have at most 255 characters", name)
    return value
