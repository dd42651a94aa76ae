"""Instances: create, read, start, stop, restart, delete."""

import orjson

from server.simulator import lifecycle
from server.simulator.billing.account import check_balance
from server.simulator.dialect import NameFilter
from server.simulator.models import Instance
from server.simulator.requests import EMPTY, ApiRequest, bad_param, not_found
from server.simulator.routes.create_instance import create_instance
from server.simulator.statuses import STATUSES
from server.simulator.validation import text
from server.simulator.world import World


def create(world: World, request: ApiRequest) -> bytes:
    return orjson.dumps({"id": create_instance(world, request).id})


def get(world: World, request: ApiRequest) -> bytes:
    instance_id = request.query("instanceId")
    if not instance_id:
        raise bad_param("instanceId is required", "instanceId")
    instance = world.instance(instance_id)
    if instance.hidden_until_sim > world.clock.now():
        raise not_found("instance")
    return world.render([instance])


def page(world: World, request: ApiRequest) -> bytes:
    start, size = world.page(request)
    status = request.query("status")
    if status and status not in STATUSES:
        raise bad_param("status is not a known status", "status")
    needle = request.query("productName").lower()
    products = {p.id for p in world.catalog.products.values() if needle in p.name.lower()} if needle else None
    dialect = world.dialect
    name = "" if dialect.name_filter is NameFilter.IGNORED else request.query("name")
    rows, total = world.index.page(
        start, size, name=name, matches=dialect.matches_name, products=products, status=status
    )
    return world.render_list(rows, dialect.total_field(total, on_page=len(rows)))


def start(world: World, request: ApiRequest) -> bytes:
    instance = named_instance(world, request)
    check_balance(world)
    faults = world.instance_faults(request.route)
    lifecycle.start(world, instance, pull_fails=faults.pull_fails)
    return _state_response(instance)


def stop(world: World, request: ApiRequest) -> bytes:
    instance = named_instance(world, request)
    lifecycle.stop(world, instance)
    return _state_response(instance)


def restart(world: World, request: ApiRequest) -> bytes:
    instance = named_instance(world, request)
    lifecycle.restart(world, instance)
    return _state_response(instance)


def delete(world: World, request: ApiRequest) -> bytes:
    lifecycle.remove(world, named_instance(world, request))
    return EMPTY


def named_instance(world: World, request: ApiRequest) -> Instance:
    return world.instance(text(request.body(), "instanceId", least=1))


def _state_response(instance: Instance) -> bytes:
    return orjson.dumps({"instanceId": instance.id, "state": instance.status})
