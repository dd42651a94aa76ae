"""Templates and registry auths."""

from typing import cast

import orjson

from server.simulator import validation
from server.simulator.requests import EMPTY, ApiRequest, JsonObject, ProviderRefusal, bad_param
from server.simulator.world import World

CHANNELS = ("private", "official", "community")


def templates(world: World, request: ApiRequest) -> bytes:
    start, size = world.page(request)
    needle = request.query("name").lower()
    kind = request.query("type")
    channels = request.query_set("channel")
    rows = [
        record
        for record in world.table("template").values()
        if needle in str(record["name"]).lower()
        and kind in ("", record["type"])
        and (not channels or record["channel"] in channels)
    ]
    return orjson.dumps(
        {
            "template": rows[start : start + size],
            "pageSize": size,
            "pageNum": start // size + 1,
            "total": len(rows),
        }
    )


def template(world: World, request: ApiRequest) -> bytes:
    return orjson.dumps({"template": _template(world, request.query("templateId"))})


def create_template(world: World, request: ApiRequest) -> bytes:
    record = _checked(world, _inner(request))
    key = str(world.next_number("template"))
    world.put("template", key, {"Id": key, **record, "createTime": str(int(world.clock.wall()))})
    return orjson.dumps({"templateId": key})


def update_template(world: World, request: ApiRequest) -> bytes:
    """Fields that are not sent keep their values."""
    changes = _inner(request)
    key = validation.text(changes, "Id", least=1)
    before = _template(world, key)
    record = _checked(world, {**before, **changes})
    world.put("template", key, {"Id": key, **record, "createTime": before["createTime"]})
    return orjson.dumps({"templateId": key})


def delete_template(world: World, request: ApiRequest) -> bytes:
    key = validation.text(request.body(), "templateId", least=1)
    _template(world, key)
    world.drop("template", key)
    return orjson.dumps({"templateId": key})


def auths(world: World, request: ApiRequest) -> bytes:
    rows = list(world.table("auth").values())
    if world.dialect.masks_auth_passwords:
        rows = [{**row, "password": "******"} for row in rows]
    return orjson.dumps({"data": rows})


def save_auth(world: World, request: ApiRequest) -> bytes:
    """The response has no id; a second auth of the same name is allowed."""
    body = request.body()
    record: JsonObject = {
        "name": validation.text(body, "name", least=1),
        "username": validation.text(body, "username", least=1),
        "password": validation.text(body, "password", least=1, most=10239),
    }
    key = world.new_id("auth", size=16)
    world.put("auth", key, {"id": key, **record})
    return EMPTY


def delete_auth(world: World, request: ApiRequest) -> bytes:
    key = validation.text(request.body(), "id", least=1)
    if key not in world.table("auth"):
        raise ProviderRefusal(404, "NOT_FOUNT", "repository auth not found")
    in_use = any(each.image_auth_id == key for each in world.instances.values())
    if in_use or any(record["imageAuth"] == key for record in world.table("template").values()):
        raise ProviderRefusal(400, "IMAGE_AUTH_IN_USE", "the image auth is in use")
    world.drop("auth", key)
    return EMPTY


def _template(world: World, key: str) -> JsonObject:
    record = world.table("template").get(key)
    if record is None:
        # 400, not 404, as seen from the real service.
        raise ProviderRefusal(400, "TEMPLATE_NOT_FOUND", "template not found")
    return record


def _inner(request: ApiRequest) -> JsonObject:
    body = validation.inner(request.body(), "template")
    if body is None:
        raise bad_param("template is required", "template")
    return body


def _checked(world: World, body: JsonObject) -> JsonObject:
    auth = validation.text(body, "imageAuth")
    world.check_image_auth(auth)
    return {
        "user": "9141320498493177",
        "name": validation.text(body, "name", least=1),
        "readme": validation.text(body, "readme", most=102_400),
        "logo": validation.text(body, "logo", most=2047),
        "type": validation.choice(body, "type", ("instance",)),
        "channel": validation.choice(body, "channel", CHANNELS),
        "image": validation.text(body, "image", least=1, most=500),
        "imageAuth": auth,
        "startCommand": validation.text(body, "startCommand", most=2047),
        "entrypoint": validation.text(body, "entrypoint", most=2047),
        "rootfsSize": validation.number(body, "rootfsSize", least=1, most=6144),
        "volumes": [_volume(item) for item in validation.objects(body, "volumes", most=30)],
        "ports": [_port_group(item) for item in validation.objects(body, "ports", most=10)],
        "envs": [{"key": key, "value": value} for key, value in validation.envs(body)],
        "tools": [_tool(item) for item in validation.objects(body, "tools", most=15)],
        "minCudaVersion": validation.text(body, "minCudaVersion"),
    }


def _volume(item: JsonObject) -> JsonObject:
    return {
        "type": validation.choice(item, "type", ("local", "network"), default="local"),
        "size": validation.number(item, "size", least=0, most=10_240, default=0),
        "mountPath": validation.text(item, "mountPath", least=1),
    }


def _port_group(item: JsonObject) -> JsonObject:
    kind = validation.port_type(item.get("type"), "ports")
    numbers = item.get("ports")
    if not isinstance(numbers, list):
        raise bad_param("ports: a group holds a list of ports", "ports")
    group = cast(list[object], numbers)
    if len(group) > 10:
        raise bad_param("ports: a group holds at most 10 ports", "ports")
    return {"type": kind, "ports": [validation.port_number(number, "ports") for number in group]}


def _tool(item: JsonObject) -> JsonObject:
    return {
        "name": validation.text(item, "name", least=1),
        "describe": validation.text(item, "describe", most=2047),
        "port": validation.port_number(item.get("port"), "tools"),
        "type": validation.port_type(item.get("type", "http"), "tools"),
    }
