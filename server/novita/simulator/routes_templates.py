"""Templates and registry auths."""

from typing import cast

import orjson

from server.novita.simulator import fields
from server.novita.simulator.wire import EMPTY, Call, JsonObject, Refusal, bad_param
from server.novita.simulator.world import World

CHANNELS = ("private", "official", "community")


def templates(world: World, call: Call) -> bytes:
    start, size = call.page()
    needle = call.query("name").lower()
    kind = call.query("type")
    # Some clients repeat the parameter, others join the values with commas.
    channels = {part for value in call.query_all("channel") for part in value.split(",") if part}
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


def template(world: World, call: Call) -> bytes:
    return orjson.dumps({"template": _template(world, call.query("templateId"))})


def create_template(world: World, call: Call) -> bytes:
    record = _checked(world, _inner(call))
    key = str(world.next_number("template"))
    world.put("template", key, {"Id": key, **record, "createTime": str(int(world.clock.wall()))})
    return orjson.dumps({"templateId": key})


def update_template(world: World, call: Call) -> bytes:
    """Fields that are not sent stay as they were."""
    given = _inner(call)
    key = fields.text(given, "Id", least=1)
    before = _template(world, key)
    record = _checked(world, {**before, **given})
    world.put("template", key, {"Id": key, **record, "createTime": before["createTime"]})
    return orjson.dumps({"templateId": key})


def delete_template(world: World, call: Call) -> bytes:
    key = fields.text(call.body(), "templateId", least=1)
    _template(world, key)
    world.drop("template", key)
    return orjson.dumps({"templateId": key})


def auths(world: World, call: Call) -> bytes:
    return orjson.dumps({"data": list(world.table("auth").values())})


def save_auth(world: World, call: Call) -> bytes:
    """The new id is not in the answer; a second auth of the same name is allowed."""
    body = call.body()
    record: JsonObject = {
        "name": fields.text(body, "name", least=1),
        "username": fields.text(body, "username", least=1),
        "password": fields.text(body, "password", least=1, most=10239),
    }
    key = world.new_id("auth", size=16)
    world.put("auth", key, {"id": key, **record})
    return EMPTY


def delete_auth(world: World, call: Call) -> bytes:
    key = fields.text(call.body(), "id", least=1)
    if key not in world.table("auth"):
        raise Refusal(404, "NOT_FOUNT", "repository auth not found")
    in_use = any(each.image_auth_id == key for each in world.instances.values())
    if in_use or any(record["imageAuth"] == key for record in world.table("template").values()):
        raise Refusal(400, "IMAGE_AUTH_IN_USE", "the image auth is in use")
    world.drop("auth", key)
    return EMPTY


def _template(world: World, key: str) -> JsonObject:
    record = world.table("template").get(key)
    if record is None:
        # 400, not 404: that is what the service was seen to answer.
        raise Refusal(400, "TEMPLATE_NOT_FOUND", "template not found")
    return record


def _inner(call: Call) -> JsonObject:
    body = fields.inner(call.body(), "template")
    if body is None:
        raise bad_param("template is required", "template")
    return body


def _checked(world: World, body: JsonObject) -> JsonObject:
    auth = fields.text(body, "imageAuth")
    if auth and auth not in world.table("auth"):
        raise Refusal(400, "IMAGE_URL_OR_AUTH_ERROR", "image auth not found")
    return {
        "user": "9141320498493177",
        "name": fields.text(body, "name", least=1),
        "readme": fields.text(body, "readme", most=102_400),
        "logo": fields.text(body, "logo", most=2047),
        "type": fields.choice(body, "type", ("instance",)),
        "channel": fields.choice(body, "channel", CHANNELS),
        "image": fields.text(body, "image", least=1, most=500),
        "imageAuth": auth,
        "startCommand": fields.text(body, "startCommand", most=2047),
        "entrypoint": fields.text(body, "entrypoint", most=2047),
        "rootfsSize": fields.number(body, "rootfsSize", least=1, most=6144),
        "volumes": [_volume(item) for item in fields.objects(body, "volumes", most=30)],
        "ports": [_port_group(item) for item in fields.objects(body, "ports", most=10)],
        "envs": [{"key": key, "value": value} for key, value in fields.envs(body)],
        "tools": [_tool(item) for item in fields.objects(body, "tools", most=15)],
        "minCudaVersion": fields.text(body, "minCudaVersion"),
    }


def _volume(item: JsonObject) -> JsonObject:
    return {
        "type": fields.choice(item, "type", ("local", "network"), default="local"),
        "size": fields.number(item, "size", least=0, most=10_240, default=0),
        "mountPath": fields.text(item, "mountPath", least=1),
    }


def _port_group(item: JsonObject) -> JsonObject:
    kind = fields.port_type(item.get("type"), "ports")
    numbers = item.get("ports")
    if not isinstance(numbers, list):
        raise bad_param("ports: a group holds a list of ports", "ports")
    group = cast(list[object], numbers)
    if len(group) > 10:
        raise bad_param("ports: a group holds at most 10 ports", "ports")
    return {"type": kind, "ports": [fields.port_number(number, "ports") for number in group]}


def _tool(item: JsonObject) -> JsonObject:
    return {
        "name": fields.text(item, "name", least=1),
        "describe": fields.text(item, "describe", most=2047),
        "port": fields.port_number(item.get("port"), "tools"),
        "type": fields.port_type(item.get("type", "http"), "tools"),
    }
