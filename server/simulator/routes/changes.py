"""Changes of an existing instance: ports, disk, image, node, billing."""

import orjson

from server.simulator import lifecycle, validation
from server.simulator.billing.bills import add_subscription
from server.simulator.models import Instance
from server.simulator.requests import EMPTY, ApiRequest, JsonObject, ProviderRefusal, bad_param, invalid_state
from server.simulator.routes.create_instance import PORTS_MAX, SECONDS_PER_MONTH, network_volumes
from server.simulator.routes.instances import named_instance
from server.simulator.routes.jobs import new_job
from server.simulator.world import World


def edit(world: World, request: ApiRequest) -> bytes:
    """New ports (as objects here) and a larger root disk, without a restart."""
    instance, body = named_instance(world, request), request.body()
    more = validation.number(body, "expandRootDisk", least=0, most=6144, default=0)
    if instance.rootfs_size + lifecycle.planned_growth(instance) + more > instance.max_rootfs:
        raise bad_param(f"the root disk can have at most {instance.max_rootfs} GB", "expandRootDisk")
    ports = None
    if body.get("ports") is not None:
        ports = [
            (validation.port_number(item.get("port"), "ports"), validation.port_type(item.get("type"), "ports"))
            for item in validation.objects(body, "ports", most=PORTS_MAX)
        ]
        ports = validation.distinct(ports, "ports")
    lifecycle.refuse_while_busy(instance)
    if instance.status not in ("running", "exited"):
        raise invalid_state()

    lifecycle.edit(world, instance, more_gb=more, ports=ports)
    return EMPTY


def upgrade(world: World, request: ApiRequest) -> bytes:
    """Change image and start settings on the same machine."""
    instance, body = named_instance(world, request), request.body()
    image_url = validation.text(body, "imageUrl", least=1, most=500)
    image_auth_id = validation.text(body, "imageAuthId", default=instance.image_auth_id)
    world.check_image_auth(image_auth_id)
    envs = validation.envs(body) if body.get("envs") is not None else instance.envs
    command = validation.text(body, "command", most=2047, default=instance.command)
    entrypoint = validation.text(body, "entrypoint", most=2047, default=instance.entrypoint)
    validation.flag(body, "save")
    volumes = _volumes(world, instance, body)
    lifecycle.reset(world, instance)

    instance.image_url, instance.image_auth_id = image_url, image_auth_id
    instance.envs, instance.command, instance.entrypoint = envs, command, entrypoint
    instance.volumes = volumes
    world.mark_changed(instance)
    return EMPTY


def migrate(world: World, request: ApiRequest) -> bytes:
    instance = named_instance(world, request)
    lifecycle.check_migrate(world, instance)
    job_id = new_job(world, instance, "instanceMigrate")
    lifecycle.migrate(world, instance, job_id)
    # The job ends when the instance runs again.
    world.put("job", job_id, {**world.table("job")[job_id], "ends_at_sim": instance.steps[-1][0]})
    return orjson.dumps({"jobId": job_id})


def set_auto_migrate(world: World, request: ApiRequest) -> bytes:
    instance, body = named_instance(world, request), request.body()
    instance.auto_migrate = validation.flag(body, "autoMigrateOpen")
    instance.auto_migrate_disk = validation.flag(body, "autoMigrateSystemDisk")
    world.mark_changed(instance)
    return EMPTY


def renew(world: World, request: ApiRequest) -> bytes:
    instance = named_instance(world, request)
    month = validation.number(request.body(), "month", least=1, most=36)
    if instance.billing_mode != "monthly":
        raise ProviderRefusal(400, "UNSUPPORTED_BILLING_MODE", "only a subscription can be renewed")
    if instance.status in ("pending", "toCreate", "creating", "pulling") and not instance.starts:
        raise ProviderRefusal(400, "CREATING_INSTANCE_NOT_SUPPORT_RENEWAL", "the instance is still being created")
    instance.end_time += month * SECONDS_PER_MONTH
    add_subscription(world, instance, months=month, trade="monthly_re_buy")
    world.mark_changed(instance)
    return EMPTY


def to_monthly(world: World, request: ApiRequest) -> bytes:
    instance = named_instance(world, request)
    month = validation.number(request.body(), "month", least=1, most=36)
    product = world.catalog.products[instance.product_id]
    if instance.billing_mode != "onDemand" or not product.monthly_price:
        raise ProviderRefusal(400, "UNSUPPORTED_BILLING_MODE", "this instance cannot become a subscription")
    instance.billing_mode = "monthly"
    instance.end_time = int(world.clock.wall()) + month * SECONDS_PER_MONTH
    world.meter.end(instance, world.clock.wall())
    instance.price = product.monthly_price * instance.gpu_num
    add_subscription(world, instance, months=month, trade="monthly_new_buy")
    world.mark_changed(instance)
    return EMPTY


def _volumes(world: World, instance: Instance, body: JsonObject) -> list[tuple[str, int, str, str]]:
    volume = validation.inner(body, "networkVolume")
    if volume is None and world.dialect.upgrade_keeps_storages:
        return instance.volumes
    mounts = [] if volume is None else validation.objects(volume, "volumeMounts", most=30)
    mounted = network_volumes(
        world, mounts, instance.cluster_id, id_field="id", path_field="mountPath", besides=instance.id
    )
    return [*(each for each in instance.volumes if each[0] != "network"), *mounted]
