"""The life of instances: create, look, start, stop, restart, delete."""

import orjson

from server.novita.simulator import lifecycle
from server.novita.simulator.creation import create_instance
from server.novita.simulator.fields import text
from server.novita.simulator.instances import Instance
from server.novita.simulator.statuses import STATUSES
from server.novita.simulator.wire import EMPTY, Call, bad_param, not_found
from server.novita.simulator.world import World


def create(world: World, call: Call) -> bytes:
    return orjson.dumps({"id": create_instance(world, call).id})


def get(world: World, call: Call) -> bytes:
    instance_id = call.query("instanceId")
    if not instance_id:
        raise bad_param("instanceId is required", "instanceId")
    instance = world.instance(instance_id)
    if instance.hidden_until_sim > world.clock.now():
        raise not_found("instance")
    return world.show([instance])


def page(world: World, call: Call) -> bytes:
    start, size = call.page()
    status = call.query("status")
    if status and status not in STATUSES:
        raise bad_param("status is not a known status", "status")
    needle = call.query("productName").lower()
    products = {p.id for p in world.catalog.products.values() if needle in p.name.lower()} if needle else None
    rows, total = world.index.page(start, size, name=call.query("name"), products=products, status=status)
    return world.show(rows, b'{"instances":[', b'],"total":%d}' % total)


def start(world: World, call: Call) -> bytes:
    instance = named_instance(world, call)
    fates = world.fates(call.route)
    lifecycle.start(world, instance, pull_fails=fates.pull_fails)
    return _moved(instance)


def stop(world: World, call: Call) -> bytes:
    instance = named_instance(world, call)
    lifecycle.stop(world, instance)
    return _moved(instance)


def restart(world: World, call: Call) -> bytes:
    instance = named_instance(world, call)
    lifecycle.restart(world, instance)
    return _moved(instance)


def delete(world: World, call: Call) -> bytes:
    lifecycle.remove(world, named_instance(world, call))
    return EMPTY


def named_instance(world: World, call: Call) -> Instance:
    return world.instance(text(call.body(), "instanceId", least=1))


def _moved(instance: Instance) -> bytes:
    return orjson.dumps({"instanceId": instance.id, "state": instance.status})
