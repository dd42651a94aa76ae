"""Every rule of the create, edit and template calls, with one refusal each."""

from typing import Any

import pytest

from tests.server.simulator.account import Account, creation

PORTS_16 = ",".join(f"{port}/http" for port in range(8000, 8016))
ENVS_31 = [{"key": f"K{number}", "value": ""} for number in range(31)]
CPU = {"kind": "cpu", "productId": "cpu.4c8g", "gpuNum": None, "rootfsSize": None}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "x" * 256}, "name"),
        ({"name": "under_score"}, "name"),
        ({"name": 5.5}, "name"),
        ({"productId": None}, "productId"),
        ({"productId": ""}, "productId"),
        ({"productId": "no-such"}, "productId"),
        ({"gpuNum": None}, "gpuNum"),
        ({"gpuNum": 0}, "gpuNum"),
        ({"gpuNum": 9}, "gpuNum"),
        ({"gpuNum": True}, "gpuNum"),
        ({"gpuNum": "two"}, "gpuNum"),
        ({"rootfsSize": None}, "rootfsSize"),
        ({"rootfsSize": 6145}, "rootfsSize"),
        ({"rootfsSize": 1.5}, "rootfsSize"),
        ({"imageUrl": None}, "imageUrl"),
        ({"imageUrl": ""}, "imageUrl"),
        ({"imageUrl": "x" * 501}, "imageUrl"),
        ({"imageAuth": "x" * 10240}, "imageAuth"),
        ({"imageAuth": "no-colon"}, "imageAuth"),
        ({"kind": None}, "kind"),
        ({"kind": "tpu"}, "kind"),
        ({"kind": "cpu"}, "kind"),
        ({"ports": ["8888/http"]}, "ports"),
        ({"ports": "8888"}, "ports"),
        ({"ports": "8888/udp"}, "ports"),
        ({"ports": "0/http"}, "ports"),
        ({"ports": "65536/tcp"}, "ports"),
        ({"ports": "2222/tcp"}, "ports"),
        ({"ports": "80/http,80/tcp"}, "ports"),
        ({"ports": PORTS_16}, "ports"),
        ({"ports": PORTS_16.rpartition(",")[0], "tools": [{"name": "J", "port": "99", "type": "http"}]}, "ports"),
        ({"tools": [{"name": "J", "port": "2223", "type": "http"}]}, "tools"),
        ({"envs": {"A": "1"}}, "envs"),
        ({"envs": ["A=1"]}, "envs"),
        ({"envs": [{"key": "", "value": "1"}]}, "key"),
        ({"envs": [{"key": "K" * 512, "value": "1"}]}, "key"),
        ({"envs": [{"key": "K", "value": "v" * 4096}]}, "value"),
        ({"envs": [{"key": "K", "value": ""}] * 101}, "envs"),
        ({**CPU, "envs": ENVS_31}, "envs"),
        ({"command": "x" * 2048}, "command"),
        ({"entrypoint": "x" * 2048}, "entrypoint"),
        ({"clusterId": "mars-1"}, "clusterId"),
        ({"clusterId": "oc-au-1"}, "clusterId"),
        ({"billingMode": "weekly"}, "billingMode"),
        ({"billingMode": "monthly", "month": 0}, "month"),
        ({"autoRenew": "yes"}, "autoRenew"),
        ({"minCudaVersion": "latest"}, "minCudaVersion"),
        ({"networkStorages": [{"Id": "x", "mountPoint": "/n"}] * 31}, "networkStorages"),
    ],
)
async def test_a_create_with_a_bad_field_is_refused_and_makes_nothing(
    account: Account, changes: dict[str, Any], field: str
):
    status, answer = await account.post("/gpu/instance/create", **creation(**changes))

    assert (status, answer["code"], answer["reason"]) == (400, 400, "VALIDATOR_PARAM")
    assert answer["metadata"] == {"field": field}
    assert (await account.get("/gpu/instances"))[1]["total"] == 0
    assert set(account.simulator.world.catalog.taken.values()) == {0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"imageAuthId": "unknown"}, "IMAGE_URL_OR_AUTH_ERROR"),
        ({"productId": "28", "clusterId": "as-in-1", "billingMode": "monthly"}, "UNSUPPORTED_BILLING_MODE"),
        ({"productId": "41", "clusterId": "eu-gb-1", "billingMode": "spot"}, "UNSUPPORTED_BILLING_MODE"),
        ({"minCudaVersion": "13.0"}, "CUDA_VERSION_INCOMPATIBLE"),
        ({"networkStorages": [{"Id": "unknown", "mountPoint": "/n"}]}, "NETWORK_STORAGE_UNAVAILABLE"),
        ({"productId": "h200.24c220g", "clusterId": "eu-gb-1"}, "INSUFFICIENT_RESOURCE"),
    ],
)
async def test_some_refusals_have_a_reason_of_their_own(account: Account, changes: dict[str, Any], reason: str):
    status, answer = await account.post("/gpu/instance/create", **creation(**changes))

    assert (status, answer["reason"]) == (400, reason)


async def test_the_largest_allowed_values_are_accepted(account: Account):
    instance_id = await account.create(
        name="n" * 255,
        gpuNum=8,
        rootfsSize=6144,
        imageUrl="i" * 500,
        imageAuth="user:" + "p" * 10234,
        command="c" * 2047,
        entrypoint="e" * 2047,
        ports=PORTS_16.rpartition(",")[0],
        envs=[{"key": f"K{number:0510d}", "value": "v" * 4095} for number in range(100)],
        minCudaVersion="12.4",
        autoRenew=True,
        autoRenewMonth=1,
    )

    shown = await account.instance(instance_id)
    assert (shown["gpuNum"], shown["cpuNum"], shown["memory"]) == ("8", "128", "496")
    assert len(shown["portMappings"]) == 15
    assert len(shown["envs"]) == 100


async def test_a_small_root_disk_is_raised_to_ten_and_unknown_fields_are_ignored(account: Account):
    instance_id = await account.create(rootfsSize=1, env=[{"key": "A", "value": "1"}], billingType="x", diskSize=3)

    shown = await account.instance(instance_id)
    assert (shown["rootfsSize"], shown["envs"]) == (10, [])


async def test_a_tool_exposes_its_port_and_keeps_it_as_a_string(account: Account):
    instance_id = await account.running(ports="22/tcp", tools=[{"name": "Jupyter", "port": "8889", "type": "http"}])

    shown = await account.instance(instance_id)
    assert shown["tools"] == [{"name": "Jupyter", "port": "8889", "type": "http"}]
    assert [each["port"] for each in shown["portMappings"]] == [22, 8889]
    assert shown["connectComponentJupyter"]["port"] == 8889


async def test_a_cpu_instance_needs_neither_gpus_nor_a_disk_size(account: Account):
    instance_id = await account.running(**CPU)

    shown = await account.instance(instance_id)
    assert (shown["kind"], shown["cpuNum"], shown["memory"], shown["rootfsSize"]) == ("cpu", "4", "8", 10)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "n" * 256},
        {"type": "serverless"},
        {"type": None},
        {"channel": "secret"},
        {"channel": None},
        {"image": ""},
        {"image": "i" * 501},
        {"rootfsSize": 0},
        {"rootfsSize": None},
        {"readme": "r" * 102_401},
        {"ports": "8888/http"},
        {"ports": [{"type": "udp", "ports": [53]}]},
        {"ports": [{"type": "http", "ports": list(range(8000, 8011))}]},
        {"ports": [{"type": "http", "ports": [2224]}]},
        {"ports": [{"type": "http", "ports": ["x"]}]},
        {"envs": [{"value": "1"}]},
        {"imageAuth": "unknown"},
        {"tools": [{"name": "J", "port": 0, "type": "http"}]},
        {"volumes": [{"type": "local", "size": 10, "mountPath": ""}]},
    ],
)
async def test_a_template_with_a_bad_field_is_refused(account: Account, changes: dict[str, Any]):
    template = {"name": "t", "type": "instance", "channel": "private", "image": "ubuntu", "rootfsSize": 20, **changes}
    template = {name: value for name, value in template.items() if value is not None}

    status, answer = await account.post("/template/create", template=template)

    assert status == 400
    assert answer["reason"] in ("VALIDATOR_PARAM", "IMAGE_URL_OR_AUTH_ERROR")
    assert (await account.get("/templates", name="t", pageSize=100))[1]["total"] == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"ports": "8888/http"},
        {"ports": [{"port": 2222, "type": "http"}]},
        {"ports": [{"port": 80, "type": "udp"}]},
        {"ports": [{"port": 80, "type": "http"}, {"port": 80, "type": "tcp"}]},
        {"ports": [{"port": port, "type": "tcp"} for port in range(8000, 8016)]},
        {"expandRootDisk": -1},
        {"expandRootDisk": 6085},
    ],
)
async def test_an_edit_with_a_bad_field_is_refused_and_changes_nothing(account: Account, changes: dict[str, Any]):
    instance_id = await account.running()
    before = await account.instance(instance_id)

    status, answer = await account.post("/gpu/instance/edit", instanceId=instance_id, **changes)

    assert (status, answer["reason"]) == (400, "VALIDATOR_PARAM")
    assert await account.instance(instance_id) == before
