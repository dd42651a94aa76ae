"""Checks a create request field by field and makes the instance."""

import re
from dataclasses import dataclass

from server.novita.simulator import fields, lifecycle
from server.novita.simulator.catalog import Product
from server.novita.simulator.instances import Instance, fraction
from server.novita.simulator.wire import Call, JsonObject, Refusal, bad_param, no_stock, not_found
from server.novita.simulator.world import World

STRICT_NAME = re.compile(r"[A-Za-z0-9-]*")
CUDA_VERSION = re.compile(r"\d{1,2}\.\d{1,2}")
# The newest CUDA that the simulated nodes' drivers run.
NEWEST_CUDA = (12, 8)
# Ports and tools together.
MOST_PORTS = 15
SECONDS_A_MONTH = 30 * 86400


@dataclass(frozen=True, slots=True)
class Placement:
    product: Product
    cluster_id: str
    gpu_num: int


def create_instance(world: World, call: Call) -> Instance:
    """All checks first: a refused create leaves nothing behind."""
    body = call.body()
    kind = fields.choice(body, "kind", ("gpu", "cpu"))
    name = fields.text(body, "name")
    if world.options.strict_names and not STRICT_NAME.fullmatch(name):
        raise bad_param("name can have letters, digits and hyphens only", "name")
    image_url = fields.text(body, "imageUrl", least=1, most=500)
    if ":" not in fields.text(body, "imageAuth", most=10239, default=":"):
        raise bad_param("imageAuth must be user:password", "imageAuth")
    image_auth_id = fields.text(body, "imageAuthId")
    if image_auth_id and image_auth_id not in world.table("auth"):
        raise Refusal(400, "IMAGE_URL_OR_AUTH_ERROR", "image auth not found")
    product = _product(world, body, kind)
    gpu_num = fields.number(body, "gpuNum", least=1, most=8) if kind == "gpu" else 1
    rootfs_size = _rootfs_size(body, product, kind)
    ports, tools = _ports_and_tools(body)
    envs = fields.envs(body, most=100 if kind == "gpu" else 30)
    command = fields.text(body, "command", most=2047)
    entrypoint = fields.text(body, "entrypoint", most=2047)
    mode = fields.choice(body, "billingMode", ("onDemand", "monthly", "spot"), default="onDemand")
    if mode not in product.billing_methods:
        raise Refusal(400, "UNSUPPORTED_BILLING_MODE", f"{product.name} is not offered as {mode}")
    month = fields.number(body, "month", least=1, most=36, default=1)
    fields.flag(body, "autoRenew")
    fields.number(body, "autoRenewMonth", least=1, most=36, default=1)
    _check_cuda(body)
    fields.text(body, "localStorageMountPoint")
    where = _place(world, body, product, gpu_num)
    volumes = _volumes(world, body, where.cluster_id)
    network_id = _network(world, body, where.cluster_id)

    now, wall = world.clock.now(), world.clock.wall()
    fates = world.fates(call.route)
    seq = world.counters["instance"] + 1
    instance = Instance(
        id=world.new_id("instance"),
        seq=seq,
        name=name,
        kind=kind,
        product_id=product.id,
        product_name=product.name,
        cluster_id=where.cluster_id,
        cluster_name=world.catalog.clusters[where.cluster_id].name,
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
        price=_price(world, product, mode, now) * gpu_num,
        created_at=wall,
        end_time=int(wall) + month * SECONDS_A_MONTH if mode == "monthly" else -1,
        ports=ports,
        envs=envs,
        tools=tools,
        volumes=volumes,
        network_id=network_id,
        network_ip=f"10.{seq // 62500 % 250}.{seq // 250 % 250}.{seq % 250 + 2}" if network_id else "",
        reclaim_after_sim=fates.reclaim_after,
    )
    lifecycle.take_stock(world, instance)
    world.add_instance(instance)
    if fates.listed_after > 0:
        instance.steps.append((now + fates.listed_after, "", "list"))
        instance.hidden_until_sim = now + fates.listed_after if fates.hidden else 0
    else:
        instance.listed = True
        world.index.add(instance)
    lifecycle.begin_create(world, instance, pull_fails=fates.pull_fails)
    return instance


def _product(world: World, body: JsonObject, kind: str) -> Product:
    product = world.catalog.products.get(fields.text(body, "productId", least=1))
    if product is None:
        raise bad_param("product not found", "productId")
    if product.is_cpu != (kind == "cpu"):
        raise bad_param(f"the product is not of kind {kind}", "kind")
    return product


def _rootfs_size(body: JsonObject, product: Product, kind: str) -> int:
    least_given = 0
    default = None if kind == "gpu" else 10
    size = fields.number(body, "rootfsSize", least=least_given, most=6144, default=default)
    if size > product.max_root_fs:
        raise bad_param(f"rootfsSize must be at most {product.max_root_fs}", "rootfsSize")
    return max(10, size)


def _ports_and_tools(body: JsonObject) -> tuple[list[tuple[int, str]], list[JsonObject]]:
    """A tool's port is exposed as well; the wire wants its number as a string."""
    ports = fields.port_string(body)
    tools: list[JsonObject] = []
    for item in fields.objects(body, "tools", most=MOST_PORTS):
        port = fields.port_number(item.get("port"), "tools")
        kind = fields.port_type(item.get("type", "http"), "tools")
        tools.append({"name": fields.text(item, "name", least=1), "port": str(port), "type": kind})
        if all(port != each for each, _ in ports):
            ports.append((port, kind))
    if len(ports) > MOST_PORTS:
        raise bad_param(f"ports and tools can be at most {MOST_PORTS} together", "ports")
    return ports, tools


def _check_cuda(body: JsonObject) -> None:
    version = fields.text(body, "minCudaVersion")
    if not version:
        return
    if not CUDA_VERSION.fullmatch(version):
        raise bad_param("minCudaVersion must look like 12.4", "minCudaVersion")
    major, _, minor = version.partition(".")
    if (int(major), int(minor)) > NEWEST_CUDA:
        raise Refusal(400, "CUDA_VERSION_INCOMPATIBLE", f"no node runs CUDA {version}")


def _place(world: World, body: JsonObject, product: Product, gpu_num: int) -> Placement:
    """The cluster asked for, or a seeded choice among those that have room."""
    asked = fields.text(body, "clusterId")
    if asked:
        if asked not in world.catalog.clusters:
            raise bad_param("cluster not found", "clusterId")
        if asked not in product.stock:
            raise bad_param("the product is not sold in this cluster", "clusterId")
        if world.catalog.free(product.id, asked) < gpu_num:
            raise no_stock()
        return Placement(product, asked, gpu_num)
    roomy = [each for each in product.stock if world.catalog.free(product.id, each) >= gpu_num]
    if not roomy:
        raise no_stock()
    pick = fraction(world.seed, "cluster", world.counters["instance"])
    return Placement(product, roomy[int(pick * len(roomy))], gpu_num)


def _volumes(world: World, body: JsonObject, cluster_id: str) -> list[tuple[str, int, str, str]]:
    volumes: list[tuple[str, int, str, str]] = []
    for item in fields.objects(body, "networkStorages", most=30):
        storage_id = fields.text(item, "Id", least=1)
        storage = world.table("storage").get(storage_id)
        if storage is None or storage["clusterId"] != cluster_id:
            raise Refusal(400, "NETWORK_STORAGE_UNAVAILABLE", "the network storage is not in this cluster")
        path = fields.text(item, "mountPoint") or "/network"
        volumes.append(("network", int(str(storage["storageSize"])), storage_id, path))
    return volumes


def _network(world: World, body: JsonObject, cluster_id: str) -> str:
    network_id = fields.text(body, "networkId")
    if not network_id:
        return ""
    network = world.table("network").get(network_id)
    if network is None:
        raise not_found("network")
    if network["clusterId"] != cluster_id:
        raise bad_param("the network is not in this cluster", "networkId")
    return network_id


def _price(world: World, product: Product, mode: str, now: float) -> int:
    return product.monthly_price if mode == "monthly" else world.catalog.price(product, mode, now)
