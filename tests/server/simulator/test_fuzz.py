"""Any request gets a valid response, and the accounting always balances."""

from collections import Counter
from contextlib import suppress
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from server.simulator import lifecycle
from server.simulator.app import HANDLERS, HOST_HANDLERS
from server.simulator.options import SimulatorOptions
from server.simulator.requests import ApiRequest, ProviderRefusal
from server.simulator.world import World
from tests.server.simulator.account import HandTime, creation

ROUTES = sorted({**HANDLERS, **HOST_HANDLERS})
HANDLER = {**HANDLERS, **HOST_HANDLERS}
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(
        ["us-ca-6", "4090.16c62g", "cpu.4c8g", "gpu", "spot", "monthly", "8888/http", "²", "--5", "107672"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Id", "id", "key", "value", "port", "type", "ports", "mountPoint"]), inner)
    ),
    max_leaves=6,
)
# All field names that requests use.
FIELDS = [
    *("instanceId", "name", "productId", "gpuNum", "rootfsSize", "imageUrl", "imageAuth", "imageAuthId", "kind"),
    *("ports", "envs", "tools", "command", "clusterId", "networkStorages", "networkId", "billingMode", "month"),
    *("minCudaVersion", "expandRootDisk", "networkVolume", "template", "templateId", "id", "storageId", "storageName"),
    *("storageSize", "jobId", "image", "ids", "productIds", "note", "username", "password", "status", "pageSize"),
    *("pageNum", "pageNo", "page", "channel", "type", "startTime", "endTime", "interval"),
]


@settings(max_examples=200, deadline=None)
@given(
    route=st.sampled_from(ROUTES),
    on_a_known_instance=st.booleans(),
    given_fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)
def test_any_body_and_query_is_answered_or_refused_and_never_breaks_the_world(
    route: str, on_a_known_instance: bool, given_fields: dict[str, Any]
):
    world = World(SimulatorOptions(), HandTime().clock())
    _, known = ask(world, "POST /gpu/instance/create", creation())
    body = {**creation(), "instanceId": known["id"], **given_fields} if on_a_known_instance else given_fields

    status, answer = ask(world, route, body)

    assert status == 200 or 400 <= status < 500
    assert isinstance(answer, dict)
    check_books(world)


ACTIONS = ["create", "start", "stop", "restart", "delete", "edit", "upgrade", "migrate", "wait", "reclaim", "save"]


@settings(max_examples=100, deadline=None)
@given(
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5), st.floats(0, 15)), min_size=5, max_size=60)
)
def test_after_any_story_every_gpu_is_accounted_for(actions: list[tuple[str, int, float]]):
    hand = HandTime()
    world = World(SimulatorOptions(spot_notice=5), hand.clock())
    world.set_stock("4090.16c62g", "us-ca-6", 5)
    ids: list[str] = ["nobody"]
    for action, which, seconds in actions:
        hand.passed += seconds / 5 if action != "wait" else seconds
        world.advance()
        instance_id = ids[which % len(ids)]
        body = {
            "instanceId": instance_id,
            "imageUrl": "i",
            "image": "i",
            "ports": [{"port": 80 + which, "type": "http"}],
        }
        match action:
            case "create":
                status, answer = ask(
                    world, "POST /gpu/instance/create", creation(gpuNum=1 + which % 3, billingMode="spot")
                )
                ids += [answer["id"]] if status == 200 else []
            case "wait":
                pass
            case "reclaim":
                with suppress(ProviderRefusal):
                    lifecycle.reclaim(world, world.instance(instance_id), notice=5)
            case "save":
                ask(world, "POST /job/save/image", body)
            case _:
                ask(world, f"POST /gpu/instance/{action}", body)
        check_books(world)

    hand.passed += 200
    world.advance()
    check_books(world)
    assert all(each.status in ("running", "exited") for each in world.instances.values())


def check_books(world: World) -> None:
    held: Counter[tuple[str, str]] = Counter()
    for each in world.instances.values():
        if each.holds_stock:
            held[each.product_id, each.cluster_id] += each.gpu_num
        assert each.holds_stock or each.status in ("exited", "removed", "toRemove", "removing")
    assert {place: count for place, count in world.catalog.taken.items() if count} == dict(held)
    assert all(count <= world.catalog.total[place] for place, count in held.items())
    assert sum(world.index.counts().values()) == len(world.index) == len(world.instances)


def ask(world: World, route: str, body: dict[str, Any]) -> tuple[int, Any]:
    query = "&".join(f"{name}={value}" for name, value in body.items())
    try:
        return 200, orjson.loads(
            HANDLER[route](world, ApiRequest(route, query.encode("utf-8", "replace"), orjson.dumps(body)))
        )
    except ProviderRefusal as refusal:
        return refusal.status, orjson.loads(refusal.body())
