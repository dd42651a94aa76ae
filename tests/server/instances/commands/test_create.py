"""Accepting a create writes four rows in one transaction, or nothing."""

import asyncio
from typing import Any

import orjson
import pytest

from server.enums import Billing, InstanceStatus
from server.errors import Invalid, KeyReused, NoCapacity, NovitaError, Refused
from server.instances.commands.create import Accepted
from server.instances.drafts import Port
from tests.support.world import CREATE, World

JUPYTER, VLLM, PRIVATE, UBUNTU, NO_IMAGE, BAD_PORTS = (str(107_672 + number) for number in range(6))
NOTHING = {"instance": 0, "operation": 0, "attempt": 0, "job": 0, "event": 0, "idempotency_key": 0, "made": 0}


async def refused(world: World, **fields: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Ask, be refused, and see that nothing at all was left behind."""
    with pytest.raises(Refused) as found:
        await world.create(**fields)
    assert await world.counts() == NOTHING
    error = found.value
    if isinstance(error, Invalid):
        return [(problem.code, problem.path) for problem in error.problems]
    return [(error.code, error.path)]


async def test_an_accepted_create_is_an_instance_an_operation_two_events_and_a_job(world: World):
    accepted = await world.create("web", ports=(Port(80, "http"),), env={"A": "1"}, labels={"team": "x"}, gpu_count=2)

    assert await world.counts() == {**NOTHING, "instance": 1, "operation": 1, "job": 1, "event": 2}
    assert accepted.replayed is False
    row = await world.instance(accepted.instance.id)
    assert (row["name"], row["status"], row["version"]) == ("web", "CREATING", 1)
    assert (row["product_name"], row["gpu_count"], row["rootfs_size_gb"]) == ("RTX 4090 24GB", 2, 60)
    assert (row["image"], row["billing"], row["template_id"]) == ("nginx:1.27", "SPOT_THEN_ON_DEMAND", None)
    assert orjson.loads(row["regions"]) == ["AS-SGP-02", "CN-HK-01", "AS-IN-01"]
    assert orjson.loads(row["ports"]) == [{"port": 80, "type": "http"}]
    assert (orjson.loads(row["env"]), orjson.loads(row["labels"])) == ({"A": "1"}, {"team": "x"})
    assert (row["estimated_ready_at"] - row["created_at"]).total_seconds() == pytest.approx(240, abs=5)
    operation = await world.operation(accepted.operation.id)
    assert (operation["kind"], operation["status"], operation["phase"]) == ("CREATE", "QUEUED", "WAITING")
    assert operation["requested_by"] == world.caller.token_id
    job = await world.one("SELECT kind, args, priority, instance_id FROM job")
    assert (job["kind"], job["priority"], job["instance_id"]) == ("CREATE_INSTANCE", 0, accepted.instance.id)
    assert orjson.loads(job["args"]) == {
        "instance_id": str(accepted.instance.id),
        "operation_id": str(accepted.operation.id),
        "request": None,
        "usual_seconds": 240.0,  # ESTIMATED_READY_TIME, while there is no history
    }
    assert await world.event_types(accepted.instance.id) == ["instance.created", "operation.started"]
    assert {event.caused_by for event in await world.events(accepted.instance.id)} == {world.caller.token_id}


async def test_a_region_given_comes_before_the_servers_own_order(world: World):
    accepted = await world.create(region="US-CA-06")
    assert accepted.instance.regions == ["US-CA-06", "AS-SGP-02", "CN-HK-01", "AS-IN-01"]


async def test_the_callers_own_order_takes_the_place_of_the_servers(world: World):
    accepted = await world.create(region="AS-IN-01", regions=("US-CA-06", "AS-IN-01"))
    assert accepted.instance.regions == ["AS-IN-01", "US-CA-06"]


async def test_a_template_gives_image_ports_env_command_disk_and_registry_auth(world: World):
    accepted = await world.create("vllm", template_id=VLLM, ports=None)

    instance = accepted.instance
    assert (instance.template_id, instance.image) == (VLLM, "vllm/vllm-openai:v0.6.4")
    assert instance.command == "--model meta-llama/Llama-3.1-8B-Instruct --port 8000"
    assert instance.env == {"HF_HOME": "/workspace/hf"}
    assert instance.ports == [{"port": 8000, "type": "http"}, {"port": 22, "type": "tcp"}]
    assert instance.rootfs_size_gb == 100
    assert instance.image_auth_id is None

    private = await world.create("private", template_id=PRIVATE, ports=None)
    assert private.instance.image_auth_id == "75irlsvvsehnqdajg2r481mjk54ecodc"


async def test_what_the_caller_says_wins_over_the_template(world: World):
    accepted = await world.create(
        template_id=VLLM,
        ports=(Port(9000, "http"),),
        env={"HF_HOME": "/elsewhere", "MORE": "1"},
        command="serve",
        rootfs_size_gb=80,
    )

    instance = accepted.instance
    assert instance.env == {"HF_HOME": "/elsewhere", "MORE": "1"}
    assert instance.ports == [{"port": 9000, "type": "http"}]
    assert (instance.command, instance.rootfs_size_gb) == ("serve", 80)


async def test_a_small_template_still_gets_the_usual_disk(world: World):
    assert (await world.create(template_id=UBUNTU)).instance.rootfs_size_gb == 60


@pytest.mark.parametrize(
    ("template", "code"),
    [(NO_IMAGE, "TEMPLATE_INVALID"), (BAD_PORTS, "TEMPLATE_INVALID"), ("99", "TEMPLATE_NOT_FOUND")],
)
async def test_a_template_that_cannot_be_run_is_refused(world: World, template: str, code: str):
    assert await refused(world, template_id=template) == [(code, ("input", "templateId"))]


async def test_an_invalid_draft_is_refused_before_any_provider_call(world: World):
    found = await refused(world, name="", gpu_count=0)
    assert [code for code, _ in found] == ["INVALID_INSTANCE_NAME", "INVALID_GPU_COUNT"]
    assert world.calls() == 0


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"product_name": "RTX 9090"}, "PRODUCT_NOT_FOUND", ("input", "productName")),
        ({"max_hourly_price_e5": 100}, "PRICE_ABOVE_MAX", ()),
        ({"product_name": "H200 SXM 141GB", "regions": ("EU-GB-01",)}, "NO_OPTIMAL_PRODUCT_ANY_REGION", ()),
        ({"region": "MARS-01"}, "INVALID_REGION", ("input", "region")),
        ({"regions": ("AS-SGP-02", "MARS-01")}, "INVALID_REGION", ("input", "regions", "1")),
    ],
)
async def test_what_no_region_can_serve_is_refused_at_once(
    world: World, fields: dict[str, Any], code: str, path: tuple[str, ...]
):
    assert await refused(world, **fields) == [(code, path)]


async def test_no_capacity_says_what_was_tried_in_each_region(world: World):
    world.stock("as-sgp-2", 0)
    with pytest.raises(NoCapacity) as found:
        await world.create(regions=("AS-SGP-02", "US-CA-06"), billing=Billing.SPOT, max_hourly_price_e5=100)

    assert found.value.code == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert [(each.region, each.code) for each in found.value.attempts] == [
        ("AS-SGP-02", "OUT_OF_STOCK"),
        ("US-CA-06", "PRICE_ABOVE_MAX"),
    ]


async def test_a_taken_name_is_refused_without_a_provider_call(world: World):
    await world.put(name="web")
    with pytest.raises(Invalid) as found:
        await world.create("web")

    assert [(each.code, each.path) for each in found.value.problems] == [("INSTANCE_NAME_TAKEN", ("input", "name"))]
    assert world.calls() == 0
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_the_name_of_a_deleted_instance_and_of_another_projects_is_free(world: World):
    await world.put(InstanceStatus.DELETED, name="web")
    await world.create("web", by=await world.new_caller("another"))
    await world.create("web")
    assert await world.value("SELECT count(*) FROM instance WHERE name = 'web'") == 3


async def outcomes(*creates: Any) -> tuple[list[Accepted], list[BaseException]]:
    results = await asyncio.gather(*creates, return_exceptions=True)
    return (
        [each for each in results if isinstance(each, Accepted)],
        [each for each in results if isinstance(each, BaseException)],
    )


async def test_the_same_key_fifty_times_at_once_is_one_instance(world: World):
    accepted, errors = await outcomes(*(world.create("web", idempotency_key="k1") for _ in range(50)))

    assert errors == []
    assert sorted(each.replayed for each in accepted) == [False] + [True] * 49
    assert len({each.instance.id for each in accepted}) == 1
    assert len({each.operation.id for each in accepted}) == 1
    assert await world.counts() == {
        **NOTHING,
        "instance": 1,
        "operation": 1,
        "job": 1,
        "event": 2,
        "idempotency_key": 1,
    }


async def test_the_same_key_later_gives_what_has_become_of_it(world: World):
    first = await world.create("web", idempotency_key="k1")
    await world.work_until_status(first.instance.id, InstanceStatus.READY)
    world.outage()

    again = await world.create("web", idempotency_key="k1")

    assert (again.replayed, again.instance.id, again.instance.status) == (True, first.instance.id, "READY")
    assert world.calls(CREATE) == 1


async def test_the_same_key_with_another_input_is_refused(world: World):
    await world.create("web", idempotency_key="k1")
    before = await world.counts()
    with pytest.raises(KeyReused) as found:
        await world.create("web", idempotency_key="k1", gpu_count=2)

    assert (found.value.code, found.value.path) == ("IDEMPOTENCY_KEY_REUSED", ("input", "idempotencyKey"))
    assert await world.counts() == before


async def test_the_same_key_with_other_inputs_at_once_is_one_instance_and_refusals(world: World):
    accepted, errors = await outcomes(*(world.create(f"web-{number}", idempotency_key="k1") for number in range(10)))

    assert len(accepted) == 1
    assert [type(each) for each in errors] == [KeyReused] * 9
    assert await world.value("SELECT count(*) FROM instance") == 1


async def test_the_same_key_in_another_project_is_another_request(world: World):
    other = await world.new_caller("another")
    first = await world.create("web", idempotency_key="k1")
    second = await world.create("web", idempotency_key="k1", by=other)
    assert second.replayed is False
    assert first.instance.id != second.instance.id


async def test_the_same_name_ten_times_at_once_is_one_instance(world: World):
    accepted, errors = await outcomes(*(world.create("web") for _ in range(10)))

    assert len(accepted) == 1
    assert [each.code for each in errors if isinstance(each, Refused)] == ["INSTANCE_NAME_TAKEN"] * 9
    counts = await world.counts()
    assert (counts["instance"], counts["operation"], counts["job"], counts["event"]) == (1, 1, 1, 2)


async def test_with_the_provider_down_and_warm_caches_a_create_is_accepted(world: World):
    await world.create("first", template_id=JUPYTER, ports=None)
    world.outage()
    before = world.calls()

    accepted = await world.create("second", template_id=JUPYTER, ports=None)

    assert accepted.instance.status == "CREATING"
    assert world.calls() == before


@pytest.mark.parametrize("fields", [{}, {"template_id": JUPYTER}])
async def test_with_the_provider_down_and_cold_caches_a_create_fails_and_leaves_nothing(
    world: World, fields: dict[str, Any]
):
    world.outage()
    with pytest.raises(NovitaError) as found:
        await world.create(**fields)

    assert (found.value.code, found.value.retryable) == ("NETWORK_ERROR", True)
    assert await world.counts() == NOTHING

    world.faults()
    await world.create(**fields)


async def test_no_provider_write_happens_inside_the_request(world: World):
    await world.create(template_id=JUPYTER)
    assert {route for route in world.simulator.world.calls if not route.startswith("GET ")} == set()
