"""Envelopes, names and types as public clients of the provider expect them."""

import aiohttp
import pytest

from server.simulator.options import SimulatorOptions
from tests.server.simulator.account import PREFIX, START, Account, creation, open_account

STRING, NUMBER, FLAG, LIST, OBJECT = str, int, bool, list, dict


async def test_regions_have_an_id_that_is_not_made_from_their_name(account: Account):
    status, answer = await account.get("/clusters")

    assert status == 200
    names = {cluster["id"]: cluster["name"] for cluster in answer["data"]}
    assert names == {
        "us-ca-6": "US-CA-06 (California)",
        "as-sgp-2": "AS-SGP-02 (Singapore)",
        "cn-hongkong-1": "CN-HK-01 (Hong Kong)",
        "as-in-1": "AS-IN-01 (Mumbai)",
        "eu-gb-1": "EU-GB-01 (United Kingdom)",
        "oc-au-1": "OC-AU-01 (Sydney)",
    }
    assert set(answer["data"][0]) == {
        "id",
        "name",
        "availableGpuType",
        "supportNetworkStorage",
        "supportInstanceNetwork",
    }


async def test_a_product_has_prices_as_strings_and_regions_as_names(account: Account):
    _, answer = await account.get("/products", clusterId="us-ca-6", productName="rtx 4090")

    assert answer == {
        "data": [
            {
                "id": "4090.16c62g",
                "name": "RTX 4090 24GB",
                "cpuPerGpu": 16,
                "memoryPerGpu": 62,
                "diskPerGpu": 6144,
                "availableDeploy": True,
                "minRootFS": 10,
                "maxRootFS": 6144,
                "minLocalStorage": 0,
                "maxLocalStorage": 0,
                "regions": ["US-CA-06 (California)", "EU-GB-01 (United Kingdom)"],
                "price": "35000",
                "spotPrice": "17500",
                "monthlyPrice": [{"price": "23000000", "month": 1}],
                "billingMethods": ["onDemand", "spot", "monthly"],
                "inventoryState": "high",
                "canBuy": True,
            }
        ]
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"billingMethod": "spot", "productName": "H100"}, {"h100.24c200g"}),
        ({"billingMethod": "monthly", "productName": "A100"}, {"a100.16c120g"}),
        ({"minMemoryPerGpu": 200}, {"h100.24c200g", "h200.24c220g"}),
        ({"clusterId": "oc-au-1"}, {"44", "5090.16c90g"}),
        ({"clusterId": "nowhere"}, set()),
    ],
)
async def test_products_are_filtered_by_what_is_asked(account: Account, query: dict[str, str], expected: set[str]):
    _, answer = await account.get("/products", **query)

    assert {product["id"] for product in answer["data"]} == expected


async def test_one_name_is_sold_in_several_regions_at_different_prices(account: Account):
    _, answer = await account.get("/products", productName="RTX 4090")

    assert len({product["id"] for product in answer["data"]}) == 4
    assert len({product["price"] for product in answer["data"]}) == 4


async def test_a_cpu_product_has_a_shape_of_its_own(account: Account):
    _, answer = await account.get("/cpu/products", clusterId="as-sgp-2")

    assert answer == {
        "data": [
            {
                "id": "cpu.4c8g",
                "name": "CPU 4C 8GB",
                "cpuNum": 4,
                "memorySize": 8,
                "rootfsSize": 200,
                "localVolumeSize": 0,
                "availableDeploy": True,
                "price": "9000",
            }
        ]
    }


async def test_an_instance_comes_bare_and_with_the_types_that_strict_clients_want(account: Account):
    instance_id = await account.running(envs=[{"key": "A", "value": "1"}], billingMode="spot")

    shown = await account.instance(instance_id)

    types = {
        **dict.fromkeys(("id", "name", "clusterId", "clusterName", "status", "imageUrl", "imageAuthId"), STRING),
        **dict.fromkeys(("command", "entrypoint", "cpuNum", "memory", "gpuNum", "productId", "productName"), STRING),
        **dict.fromkeys(("kind", "billingMode", "endTime", "spotStatus", "spotReclaimTime", "createdAt"), STRING),
        **dict.fromkeys(("lastStartedAt", "lastStoppedAt", "useTime", "instancePrice"), STRING),
        **dict.fromkeys(("localStoragePrice", "exitedLocalStoragePrice"), STRING),
        **dict.fromkeys(("rootfsSize", "freeStorageSize", "keepDataDay"), NUMBER),
        **dict.fromkeys(("portMappings", "volumeMounts", "envs", "tools", "jobs"), LIST),
        **dict.fromkeys(("statusError", "network", "node", "connectComponentSSH", "connectComponentLog"), OBJECT),
        **dict.fromkeys(("connectComponentWebTerminal", "connectComponentJupyter"), OBJECT),
        **dict.fromkeys(("autoMigrateOpen", "autoMigrateSystemDisk"), FLAG),
    }
    assert {name: type(value) for name, value in shown.items()} == types
    assert (shown["cpuNum"], shown["memory"], shown["gpuNum"], shown["rootfsSize"]) == ("16", "62", "1", 60)
    assert shown["createdAt"] == str(int(START))
    assert shown["instancePrice"] == "17500"
    assert shown["envs"] == [{"key": "A", "value": "1"}]
    assert [(each["port"], each["type"]) for each in shown["portMappings"]] == [(8888, "http"), (22, "tcp")]


async def test_what_is_unset_is_an_empty_string_and_never_null(account: Account):
    instance_id = await account.create(ports=None)

    shown = await account.instance(instance_id)

    assert shown["spotStatus"] == ""
    assert shown["imageAuthId"] == ""
    assert shown["statusError"] == {"state": "", "message": ""}
    assert shown["endTime"] == "-1"
    assert None not in shown.values()


async def test_a_list_has_ten_by_default_newest_first_and_page_zero_is_page_one(account: Account):
    ids = [await account.create(name=f"batch-{number}") for number in range(12)]

    _, default = await account.get("/gpu/instances")
    _, zero = await account.get("/gpu/instances", pageNum=0, pageSize=5)
    _, one = await account.get("/gpu/instances", pageNum=1, pageSize=5)
    _, last = await account.get("/gpu/instances", pageNum=3, pageSize=5)
    _, beyond = await account.get("/gpu/instances", pageNum=4, pageSize=5)
    _, wrong_names = await account.get("/gpu/instances", page=2, page_size=1, pageNumber=2)

    newest = ids[::-1]
    assert default["total"] == 12
    assert [each["id"] for each in default["instances"]] == newest[:10]
    assert [each["id"] for each in zero["instances"]] == newest[:5]
    assert one == zero
    assert [each["id"] for each in last["instances"]] == newest[10:]
    assert beyond == {"instances": [], "total": 12}
    assert wrong_names == default


async def test_a_list_is_filtered_by_part_of_a_name_product_and_status(account: Account):
    wanted = await account.running(name="alpha-Marker-0123456789")
    other = await account.create(name="beta-marker-99", productId="a100.16c120g")

    async def found(**query: str) -> list[str]:
        _, answer = await account.get("/gpu/instances", **query)
        assert answer["total"] == len(answer["instances"])
        return [each["id"] for each in answer["instances"]]

    assert await found(name="marker") == [other, wanted]
    assert await found(name="marker-01234") == [wanted]
    assert await found(name="alpha-marker-0123456789") == [wanted]
    assert await found(name="marker-012345678x") == []
    assert await found(name="alpha-marker", status="exited") == []
    assert await found(status="running") == [wanted]
    assert await found(productName="a100") == [other]
    assert await found(name="marker", status="running", productName="4090") == [wanted]
    assert (await account.get("/gpu/instances", status="stopped"))[0] == 400


async def test_lists_and_gets_show_the_same_instance(account: Account):
    instance_id = await account.running()

    _, listed = await account.get("/gpu/instances", pageSize=100)

    assert listed == {"instances": [await account.instance(instance_id)], "total": 1}


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Basic abc", "sk_good"])
async def test_without_a_bearer_key_the_answer_is_401(account: Account, authorization: str | None):
    headers = {} if authorization is None else {"Authorization": authorization}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(account.simulator.url + PREFIX + "/clusters") as answer,
    ):
        assert answer.status == 401
        assert await answer.json() == {
            "code": 401,
            "reason": "MISSING_API_KEY",
            "message": "missing API key",
            "metadata": {},
        }


async def test_only_the_keys_it_was_given_are_accepted():
    async with open_account(SimulatorOptions(api_keys=("sk_good",))) as account:
        assert (await account.get("/clusters"))[0] == 200

        account.session.headers["Authorization"] = "Bearer sk_bad"
        status, answer = await account.get("/clusters")

    assert (status, answer["code"], answer["reason"]) == (401, 401, "INVALID_API_KEY")


@pytest.mark.parametrize(
    "path",
    [
        PREFIX + "/gpu/instance/list",
        PREFIX + "/gpu/instance/get",
        PREFIX + "/gpu/instances/abc",
        PREFIX + "/networkstorages",
        PREFIX + "/instance/metrics",
        PREFIX + "/endpoint/list",
        PREFIX + "/health",
        PREFIX,
        "/health",
        "/clusters",
        "/v1/products",
        "/",
    ],
)
async def test_a_path_that_does_not_exist_is_a_404_without_json(account: Account, path: str):
    async with account.session.get(account.simulator.url + path) as answer:
        assert answer.status == 404
        assert answer.content_type == "text/plain"


@pytest.mark.parametrize("path", ["/gpu/instance/update", "/cpu/instance/create", "/gpu/instances/create"])
async def test_a_post_to_a_path_that_does_not_exist_makes_nothing(account: Account, path: str):
    async with account.session.post(account.simulator.url + PREFIX + path, json=creation()) as answer:
        assert answer.status == 404
    assert (await account.control("GET", "/state"))["instancesMade"] == 0


async def test_a_missing_instance_is_a_404_with_the_provider_s_own_spelling(account: Account):
    expected = {"code": 404, "reason": "NOT_FOUNT", "message": "instance not found", "metadata": {}}

    assert await account.get("/gpu/instance", instanceId="nope") == (404, expected)
    for action in ("start", "stop", "restart", "delete", "migrate"):
        assert await account.post(f"/gpu/instance/{action}", instanceId="nope") == (404, expected)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff"])
async def test_a_body_that_is_no_object_is_refused(account: Account, body: bytes):
    url = account.simulator.url + PREFIX + "/gpu/instance/create"
    async with account.session.post(url, data=body) as answer:
        assert answer.status == 400
        assert set(await answer.json()) == {"code", "reason", "message", "metadata"}
