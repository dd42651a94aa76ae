"""Changes to an instance that exists: ports, disk, image, node, billing."""

import orjson

from server.novita.simulator import fields, lifecycle
from server.novita.simulator.creation import MOST_PORTS, SECONDS_A_MONTH
from server.novita.simulator.instances import Instance
from server.novita.simulator.routes_instances import named_instance
from server.novita.simulator.routes_jobs import new_job
from server.novita.simulator.wire import EMPTY, Call, JsonObject, Refusal, bad_param, invalid_state
from server.novita.simulator.world import World

# Simulated seconds until edited ports answer.
EDIT_TAKES = 2.0


def edit(world: World, call: Call) -> bytes:
    """New ports (as objects here) and a larger root disk, without a restart."""
    instance, body = named_instance(world, call), call.body()
    more = fields.number(body, "expandRootDisk", least=0, most=6144, default=0)
    if instance.rootfs_size + more > instance.max_rootfs:
        raise bad_param(f"the root disk can have at most {instance.max_rootfs} GB", "expandRootDisk")
    ports = instance.ports
    if body.get("ports") is not None:
        ports = [
            (fields.port_number(item.get("port"), "ports"), fields.port_type(item.get("type"), "ports"))
            for item in fields.objects(body, "ports", most=MOST_PORTS)
        ]
        ports = fields.distinct(ports, "ports")
    lifecycle.refuse_while_busy(instance)
    if instance.status not in ("running", "exited"):
        raise invalid_state()

    instance.rootfs_size += more
    if ports != instance.ports:
        instance.ports = ports
        # Gone ports close at once; new ones get an address when the change has arrived at the node.
        if world.endpoints and instance.is_running:
            world.endpoints.trim(instance)
        world.plan(instance, [*instance.steps, (world.clock.now() + EDIT_TAKES, "", "ports")])
    world.changed(instance)
    return EMPTY


def upgrade(world: World, call: Call) -> bytes:
    """Another image and start settings on the same machine."""
    instance, body = named_instance(world, call), call.body()
    image_url = fields.text(body, "imageUrl", least=1, most=500)
    image_auth_id = fields.text(body, "imageAuthId", default=instance.image_auth_id)
    if image_auth_id and image_auth_id not in world.table("auth"):
        raise Refusal(400, "IMAGE_URL_OR_AUTH_ERROR", "image auth not found")
    envs = fields.envs(body) if body.get("envs") is not None else instance.envs
    command = fields.text(body, "command", most=2047, default=instance.command)
    entrypoint = fields.text(body, "entrypoint", most=2047, default=instance.entrypoint)
    fields.flag(body, "save")
    volumes = _volumes(world, instance, body)
    lifecycle.reset(world, instance)

    instance.image_url, instance.image_auth_id = image_url, image_auth_id
    instance.envs, instance.command, instance.entrypoint = envs, command, entrypoint
    instance.volumes = volumes
    world.changed(instance)
    return EMPTY


def migrate(world: World, call: Call) -> bytes:
    instance = named_instance(world, call)
    lifecycle.check_migrate(world, instance)
    job_id = new_job(world, instance, "instanceMigrate")
    lifecycle.migrate(world, instance, job_id)
    # The job is over when the instance runs again.
    world.put("job", job_id, {**world.table("job")[job_id], "ends_at_sim": instance.steps[-1][0]})
    return orjson.dumps({"jobId": job_id})


def set_auto_migrate(world: World, call: Call) -> bytes:
    instance, body = named_instance(world, call), call.body()
    instance.auto_migrate = fields.flag(body, "autoMigrateOpen")
    instance.auto_migrate_disk = fields.flag(body, "autoMigrateSystemDisk")
    world.changed(instance)
    return EMPTY


def renew(world: World, call: Call) -> bytes:
    instance = named_instance(world, call)
    month = fields.number(call.body(), "month", least=1, most=36)
    if instance.billing_mode != "monthly":
        raise Refusal(400, "UNSUPPORTED_BILLING_MODE", "only a subscription can be renewed")
    if instance.status in ("pending", "toCreate", "creating", "pulling") and not instance.starts:
        raise Refusal(400, "CREATING_INSTANCE_NOT_SUPPORT_RENEWAL", "the instance is still being created")
    instance.end_time += month * SECONDS_A_MONTH
    world.changed(instance)
    return EMPTY


def to_monthly(world: World, call: Call) -> bytes:
    instance = named_instance(world, call)
    month = fields.number(call.body(), "month", least=1, most=36)
    product = world.catalog.products[instance.product_id]
    if instance.billing_mode != "onDemand" or not product.monthly_price:
        raise Refusal(400, "UNSUPPORTED_BILLING_MODE", "this instance cannot become a subscription")
    instance.billing_mode = "monthly"
    instance.end_time = int(world.clock.wall()) + month * SECONDS_A_MONTH
    instance.price = product.monthly_price * instance.gpu_num
    world.changed(instance)
    return EMPTY


def _volumes(world: World, instance: Instance, body: JsonObject) -> list[tuple[str, int, str, str]]:
    volume = fields.inner(body, "networkVolume")
    if volume is None:
        return instance.volumes
    volumes: list[tuple[str, int, str, str]] = []
    for item in fields.objects(volume, "volumeMounts", most=30):
        storage_id = fields.text(item, "id", least=1)
        storage = world.table("storage").get(storage_id)
        if storage is None or storage["clusterId"] != instance.cluster_id:
            raise Refusal(400, "NETWORK_STORAGE_UNAVAILABLE", "the network storage is not in this cluster")
        path = fields.text(item, "mountPath") or "/network"
        volumes.append(("network", int(str(storage["storageSize"])), storage_id, path))
    return volumes
