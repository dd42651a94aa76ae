"""Entrypoint, tools, lowest CUDA version, private network and CPU instances: forwarded, or refused with a path."""

from typing import Any

import orjson
import pytest

from server.enums import Billing, InstanceKind, InstanceStatus, ToolName
from server.errors import Invalid, NoCapacity, Refused
from server.instances.drafts import Port
from server.instances.tools import Tool
from tests.support.api import Api
from tests.support.world import SINGAPORE, World

CPU = "CPU 4C 8GB"
JUPYTER_TEMPLATE = "107672"


async def made(world: World, **fields: Any) -> Any:
    """The machine that the provider made for an accepted create."""
    accepted = await world.create(**fields)
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    row = await world.instance(accepted.instance.id)
    return world.simulator.world.instance(row["novita_id"])


async def refused(world: World, **fields: Any) -> list[tuple[str, tuple[str, ...]]]:
    with pytest.raises(Refused) as found:
        await world.create(**fields)
    assert await world.value("SELECT count(*) FROM instance") == 0
    error = found.value
    problems = error.problems if isinstance(error, Invalid) else [error]
    return [(each.code, each.path) for each in problems]


async def a_network(world: World, cluster_id: str = "as-sgp-2") -> str:
    await world.novita.create_network(cluster_id=cluster_id, name="lan")
    return next(network.id for network in (await world.novita.networks()).items if network.name == "lan")


async def test_entrypoint_tools_and_cuda_version_reach_the_provider(world: World):
    tools = (Tool.of(ToolName.SSH), Tool.of(ToolName.JUPYTER, 9999))

    machine = await made(world, entrypoint="/bin/serve", tools=tools, min_cuda_version="12.4")

    assert machine.entrypoint == "/bin/serve"
    assert machine.tools == [
        {"name": "SSH", "port": "22", "type": "tcp"},
        {"name": "Jupyter", "port": "9999", "type": "http"},
    ]


async def test_a_cuda_version_that_no_machine_has_is_the_providers_refusal(world: World):
    accepted = await world.create(min_cuda_version="99.9")
    operation = await world.work_until_over(accepted.operation.id)
    assert (operation["error_code"], operation["error_retryable"]) == ("CUDA_VERSION_INCOMPATIBLE", False)


async def test_what_is_requested_replaces_what_the_template_has(world: World):
    accepted = await world.create(template_id=JUPYTER_TEMPLATE, ports=None, entrypoint="run", tools=())

    row = await world.instance(accepted.instance.id)
    assert (row["entrypoint"], orjson.loads(row["tools"])) == ("run", [])


async def test_a_tool_does_not_fit_beside_the_templates_ports_of_another_type(world: World):
    fields = {"template_id": JUPYTER_TEMPLATE, "ports": None, "tools": (Tool("Jupyter", 22, "http"),)}
    assert await refused(world, **fields) == [("INVALID_TOOL", ("input", "tools", "0"))]


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"tools": (Tool.of(ToolName.OTHER),)}, "INVALID_TOOL", ("tools", "0")),
        ({"tools": (Tool.of(ToolName.SSH, 70_000),)}, "INVALID_TOOL", ("tools", "0")),
        ({"tools": (Tool.of(ToolName.SSH),) * 2}, "INVALID_TOOL", ("tools",)),
        ({"tools": (Tool.of(ToolName.SSH),), "ports": (Port(22, "http"),)}, "INVALID_TOOL", ("tools", "0")),
        (
            {"tools": (Tool.of(ToolName.SSH),), "ports": tuple(Port(number, "tcp") for number in range(100, 115))},
            "INVALID_TOOL",
            ("tools",),
        ),
        ({"entrypoint": "e" * 2048}, "INVALID_ENTRYPOINT", ("entrypoint",)),
        ({"min_cuda_version": "newest"}, "INVALID_MIN_CUDA_VERSION", ("minCudaVersion",)),
        ({"network_id": " "}, "INVALID_NETWORK_ID", ("networkId",)),
        ({"network_id": "nothing"}, "NETWORK_NOT_FOUND", ("networkId",)),
        ({"kind": InstanceKind.OTHER}, "INVALID_KIND", ("kind",)),
        ({"kind": InstanceKind.CPU, "gpu_count": 2}, "INVALID_GPU_COUNT", ("gpuCount",)),
        ({"kind": InstanceKind.CPU, "min_cuda_version": "12.4"}, "INVALID_MIN_CUDA_VERSION", ("minCudaVersion",)),
        ({"kind": InstanceKind.CPU, "env": {f"K{n}": "v" for n in range(31)}}, "INVALID_ENV", ("env",)),
    ],
)
async def test_what_can_not_be_served_is_refused_with_its_path(
    world: World, fields: dict[str, Any], code: str, path: tuple[str, ...]
):
    assert await refused(world, **fields) == [(code, ("input", *path))]


async def test_an_instance_in_a_network_is_created_in_the_networks_region(world: World):
    network_id = await a_network(world, "us-ca-6")

    machine = await made(world, network_id=network_id, regions=("ANY",))

    assert (machine.network_id, machine.cluster_id) == (network_id, "us-ca-6")


async def test_a_network_of_another_region_than_requested_is_refused(world: World):
    network_id = await a_network(world, "us-ca-6")
    problems = await refused(world, network_id=network_id, region=SINGAPORE)
    assert problems == [("NETWORK_REGION_MISMATCH", ("input", "networkId"))]


async def test_a_cpu_instance_is_placed_priced_and_created_without_gpus(world: World):
    machine = await made(world, product_name=CPU, kind=InstanceKind.CPU, regions=("ANY",))

    assert (machine.kind, machine.product_id, machine.billing_mode) == ("cpu", "cpu.4c8g", "onDemand")
    row = await world.one("SELECT gpu_count, billing_mode, price_per_hour_e5 FROM instance")
    assert tuple(row) == (0, "onDemand", 9000)


async def test_a_cpu_instance_is_not_offered_as_spot_and_names_only_regions_that_have_it(world: World):
    fields = {"product_name": "CPU 16C 32GB", "kind": InstanceKind.CPU, "regions": ("ANY",)}
    with pytest.raises(NoCapacity) as found:
        await world.create(**fields, billing=Billing.SPOT)
    assert {each.code for each in found.value.attempts} == {"BILLING_NOT_OFFERED"}
    assert found.value.message.endswith("In stock on demand: US-CA-06.")


async def test_a_gpu_product_is_no_cpu_product(world: World):
    assert await refused(world, kind=InstanceKind.CPU, regions=("ANY",)) == [
        ("PRODUCT_NOT_FOUND", ("input", "productName"))
    ]


async def test_the_api_takes_and_shows_all_of_it(api: Api):
    network_id = await a_network(api.world)
    created = await api.create(
        productName=CPU,
        kind="CPU",
        entrypoint="/bin/serve",
        tools=[{"name": "JUPYTER"}],
        networkId=network_id,
        idempotencyKey="cpu",
    )
    assert created["errors"] == []

    shown = "kind gpuCount entrypoint minCudaVersion networkId tools { name port }"
    document = f"query ($id: ID!) {{ instance(id: $id) {{ {shown} }} instances {{ nodes {{ {shown} }} }} }}"
    data = (await api.ask(document, id=created["instance"]["id"])).data
    expected = {
        "kind": "CPU",
        "gpuCount": 0,
        "entrypoint": "/bin/serve",
        "minCudaVersion": None,
        "networkId": network_id,
        "tools": [{"name": "JUPYTER", "port": 8888}],
    }
    assert data == {"instance": expected, "instances": {"nodes": [expected]}}


async def test_cpu_products_and_their_quote_can_be_read(api: Api):
    document = """
        { products(filter: {kind: CPU, regions: ["AS-SGP-02"]}) {
            name kind cpuPerGpu pricePerGpuHour { amountMicros } isAvailable isSpotAvailable }
          quote(input: {productName: "CPU 4C 8GB", kind: CPU}) { pricePerHour { amountMicros } errors { code } } }
    """
    data = (await api.ask(document)).data
    assert data["products"] == [
        {
            "name": CPU,
            "kind": "CPU",
            "cpuPerGpu": 4,
            "pricePerGpuHour": {"amountMicros": 90000},
            "isAvailable": True,
            "isSpotAvailable": False,
        }
    ]
    assert data["quote"] == {"pricePerHour": {"amountMicros": 90000}, "errors": []}
