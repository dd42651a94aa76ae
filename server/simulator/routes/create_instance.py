"""Checks a create request field by field and creates the instance."""

import re

from server.simulator import lifecycle, validation
from server.simulator.billing.account import check_balance
from server.simulator.billing.bills import add_subscription
from server.simulator.catalog import Product
from server.simulator.models import Instance, fraction
from server.simulator.requests import ApiRequest, JsonObject, ProviderRefusal, bad_param, no_stock, not_found
from server.simulator.world import World

STRICT_NAME = re.compile(r"[A-Za-z0-9-]*")
CUDA_VERSION = re.compile(r"\d{1,2}\.\d{1,2}")
# The newest CUDA version of the simulated nodes' drivers.
NEWEST_CUDA = (12, 8)
# Ports and tools together.
PORTS_MAX = 15
SECONDS_PER_MONTH = 30 * 86400


def create_instance(world: World, request: ApiRequest) -> Instance:
    """All checks come first: a refused create changes nothing."""
    body = request.body()
    kind = validation.choice(body, "kind", ("gpu", "cpu"))
    name = validation.text(body, "name")
    if world.options.strict_names and not STRICT_NAME.fullmatch(name):
        raise bad_param("name can have letters, digits and hyphens only", "name")
    image_url = validation.text(body, "imageUrl", least=1, most=500)
    if ":" not in validation.text(body, "imageAuth", most=10239, default=":"):
        raise bad_param("imageAuth must be user:password", "imageAuth")
    image_auth_id = validation.text(body, "imageAuthId")
    world.check_image_auth(image_auth_id)
    product = _product(world, body, kind)
    gpu_num = validation.number(body, "gpuNum", least=1, most=8) if kind == "gpu" else 1
    rootfs_size = _rootfs_size(body, product, kind)
    ports, tools = _ports_and_tools(body)
    envs = validation.envs(body, most=100 if kind == "gpu" else 30)
    command = validation.text(body, "command", most=2047)
    entrypoint = validation.text(body, "entrypoint", most=2047)
    mode = validation.choice(body, "billingMode", ("onDemand", "monthly", "spot"), default="onDemand")
    if mode not in product.billing_methods:
        raise ProviderRefusal(400, "UNSUPPORTED_BILLING_MODE", f"{product.name} is not offered as {mode}")
    month = validation.number(body, "month", least=1, most=36, default=1)
    validation.flag(body, "autoRenew")
    validation.number(body, "autoRenewMonth", least=1, most=36, default=1)
    _check_cuda(body)
    validation.text(body, "localStorageMountPoint")
    storages = validation.objects(body, "networkStorages", most=30)
    cluster_id = _choose_cluster(world, body, product, gpu_num, storages)
    volumes = network_volumes(world, storages, cluster_id, id_field="Id", path_field="mountPoint")
    network_id = _network(world, body, cluster_id)
    check_balance(world)

    now, wall = world.clock.now(), world.clock.wall()
    faults = world.instance_faults(request.route)
    seq = world.counters["instance"] + 1
    instance = Instance(
        id=world.new_id("instance"),
        seq=seq,
        name=name,
        kind=kind,
        product_id=product.id,
        product_name=product.name,
        cluster_id=cluster_id,
        cluster_name=world.catalog.clusters[cluster_id].name,
        cpu_num=product.cpu_per_gpu * gpu_num,
        memory=product.memory_per_gpu * gpu_num,
        gpu_num=gpu_num,
        rootfs_size=rootfs_size,
        max_rootfs=product.max_root_fs,
        image_url=image_url,
        image_auth_id=image_auth_id,
        command=command,
        entrypoint=entrypoint,
        billing_mode=mode,
        price=_price(world, product, mode, now, cluster_id) * gpu_num,
        created_at=wall,
        end_time=int(wall) + month * SECONDS_PER_MONTH if mode == "monthly" else -1,
        ports=ports,
        envs=envs,
        tools=tools,
        volumes=volumes,
        network_id=network_id,
        network_ip=f"10.{seq // 62500 % 250}.{seq // 250 % 250}.{seq % 250 + 2}" if network_id else "",
        reclaim_after_sim=faults.reclaim_after,
    )
    if world.dialect.unique_names and any(each.name == instance.name for each in world.instances.values()):
        raise ProviderRefusal(409, "CONFLICT", "an instance with this name exists")
    lifecycle.take_stock(world, instance)
    world.add_instance(instance)
    if mode == "monthly":
        add_subscription(world, instance, months=month, trade="monthly_new_buy")
    if faults.listed_after > 0:
        instance.steps.append((now + faults.listed_after, "", "list"))
        instance.hidden_until_sim = now + faults.listed_after if faults.hidden else 0
    else:
        instance.listed = True
        world.index.add(instance)
    lifecycle.begin_create(world, instance, pull_fails=faults.pull_fails)
    return instance


def _product(world: World, body: JsonObject, kind: str) -> Product:
    product = world.catalog.products.get(validation.text(body, "productId", least=1))
    if product is None:
        raise bad_param("product not found", "productId")
    if product.is_cpu != (kind == "cpu"):
        raise bad_param(f"the product is not of kind {kind}", "kind")
    return product


def _rootfs_size(body: JsonObject, product: Product, kind: str) -> int:
    default = None if kind == "gpu" else 10
    size = validation.number(body, "rootfsSize", least=0, most=6144, default=default)
    if size > product.max_root_fs:
        raise bad_param(f"rootfsSize must be at most {product.max_root_fs}", "rootfsSize")
    return max(10, size)


def _ports_and_tools(body: JsonObject) -> tuple[list[tuple[int, str]], list[JsonObject]]:
    """A tool's port is exposed, too; the API has its number as a string."""
    ports = validation.port_string(body)
    tools: list[JsonObject] = []
    for item in validation.objects(body, "tools", most=PORTS_MAX):
        port = validation.port_number(item.get("port"), "tools")
        kind = validation.port_type(item.get("type", "http"), "tools")
        tools.append({"name": validation.text(item, "name", least=1), "port": str(port), "type": kind})
        if all(port != each for each, _ in ports):
            ports.append((port, kind))
    if len(ports) > PORTS_MAX:
        raise bad_param(f"ports and tools can be at most {PORTS_MAX} together", "ports")
    return ports, tools


def _check_cuda(body: JsonObject) -> None:
    version = validation.text(body, "minCudaVersion")
    if not version:
        return
    if not CUDA_VERSION.fullmatch(version):
        raise bad_param("minCudaVersion must look like 12.4", "minCudaVersion")
    major, _, minor = version.partition(".")
    if (int(major), int(minor)) > NEWEST_CUDA:
        raise ProviderRefusal(400, "CUDA_VERSION_INCOMPATIBLE", f"no node runs CUDA {version}")


def _choose_cluster(world: World, body: JsonObject, product: Product, gpu_num: int, storages: list[JsonObject]) -> str:
    """The requested cluster, or a seeded choice among those with enough stock, where its storages and network are."""
    cluster_id = validation.text(body, "clusterId")
    if cluster_id:
        if cluster_id not in world.catalog.clusters:
            raise bad_param("cluster not found", "clusterId")
        if cluster_id not in product.stock:
            raise bad_param("the product is not sold in this cluster", "clusterId")
        if world.catalog.free(product.id, cluster_id) < gpu_num:
            raise no_stock()
        return cluster_id
    named = [world.table("storage").get(validation.text(each, "Id")) for each in storages]
    named.append(world.table("network").get(validation.text(body, "networkId")))
    places = {each["clusterId"] for each in named if each}
    sold = [each for each in product.stock if each in places] or product.stock
    in_stock = [each for each in sold if world.catalog.free(product.id, each) >= gpu_num]
    if not in_stock:
        raise no_stock()
    pick = fraction(world.seed, "cluster", world.counters["instance"])
    return in_stock[int(pick * len(in_stock))]


def network_volumes(
    world: World, storages: list[JsonObject], cluster_id: str, *, id_field: str, path_field: str, besides: str = ""
) -> list[tuple[str, int, str, str]]:
    """`besides` is the id of the instance that they are for, if it exists already."""
    volumes: list[tuple[str, int, str, str]] = []
    for item in storages:
        storage_id = validation.text(item, id_field, least=1)
        storage = world.table("storage").get(storage_id)
        if storage is None or storage["clusterId"] != cluster_id:
            raise ProviderRefusal(400, "NETWORK_STORAGE_UNAVAILABLE", "the network storage is not in this cluster")
        if not world.dialect.shares_storages and is_held(world, storage_id, besides=besides):
            raise ProviderRefusal(400, "NETWORK_STORAGE_IN_USE", "another instance has the network storage")
        path = validation.text(item, path_field) or "/network"
        volumes.append(("network", int(str(storage["storageSize"])), storage_id, path))
    return volumes


def is_held(world: World, storage_id: str, *, besides: str = "") -> bool:
    """An instance has its network storages until it is removed, also while it is stopped."""
    return any(
        volume[2] == storage_id
        for each in world.instances.values()
        if each.volumes and each.id != besides and each.status != "removed"
        for volume in each.volumes
    )


def _network(world: World, body: JsonObject, cluster_id: str) -> str:
    network_id = validation.text(body, "networkId")
    if not network_id:
        return ""
    network = world.table("network").get(network_id)
    if network is None:
        raise not_found("network")
    if network["clusterId"] != cluster_id:
        raise bad_param("the network is not in this cluster", "networkId")
    return network_id


def _price(world: World, product: Product, mode: str, now: float, cluster_id: str) -> int:
    return product.monthly_price if mode == "monthly" else world.catalog.price(product, mode, now, cluster_id)
