"""GPUs are counted: taken by create and start, freed by stop and delete."""

import asyncio

import pytest

from server.simulator.catalog import Catalog
from server.simulator.options import SimulatorOptions
from tests.server.simulator.account import Account, creation, open_account

NO_STOCK = (
    400,
    {"code": 400, "reason": "INSUFFICIENT_RESOURCE", "message": "insufficient resource", "metadata": {}},
)


async def product(account: Account, product_id: str, cluster_id: str) -> dict[str, object]:
    _, answer = await account.get("/products", clusterId=cluster_id)
    return next(each for each in answer["data"] if each["id"] == product_id)


async def test_the_last_gpus_go_to_exactly_as_many_creates(account: Account):
    await account.control("POST", "/stock", productId="26", clusterId="as-sgp-2", free=3)

    answers = await asyncio.gather(
        *(account.post("/gpu/instance/create", **creation(productId="26", clusterId="as-sgp-2")) for _ in range(10))
    )

    assert sum(status == 200 for status, _ in answers) == 3
    assert [answer for answer in answers if answer[0] != 200] == [NO_STOCK] * 7
    sold_out = await product(account, "26", "as-sgp-2")
    assert (sold_out["availableDeploy"], sold_out["inventoryState"], sold_out["canBuy"]) == (False, "none", False)


async def test_a_stopped_instance_can_lose_its_gpu_to_another(account: Account):
    await account.control("POST", "/stock", productId="28", clusterId="as-in-1", free=1)
    first = await account.running(productId="28", clusterId="as-in-1")
    await account.post("/gpu/instance/stop", instanceId=first)
    assert (await product(account, "28", "as-in-1"))["availableDeploy"] is False
    account.time.passed += 3
    assert await account.status(first) == "exited"
    assert (await product(account, "28", "as-in-1"))["availableDeploy"] is True

    second = await account.create(productId="28", clusterId="as-in-1")

    assert await account.post("/gpu/instance/start", instanceId=first) == NO_STOCK
    assert await account.status(first) == "exited"
    migrate = await account.post("/gpu/instance/migrate", instanceId=first)
    assert (migrate[0], migrate[1]["reason"]) == (400, "MIGRATE_INSUFFICIENT_RESOURCE")

    await account.post("/gpu/instance/delete", instanceId=second)
    account.time.passed += 3
    assert (await account.post("/gpu/instance/start", instanceId=first))[0] == 200


async def test_without_a_region_the_create_goes_where_there_is_room(account: Account):
    await account.control("POST", "/stock", productId="4090.16c62g", clusterId="us-ca-6", free=0)

    places = {(await account.instance(await account.create(clusterId=None)))["clusterId"] for _ in range(4)}

    assert places == {"eu-gb-1"}


@pytest.mark.parametrize("cluster_id", ["us-ca-6", "eu-gb-1"])
async def test_without_a_region_the_create_goes_where_its_storage_or_network_is(account: Account, cluster_id: str):
    """A public client can name a storage, but no region."""
    _, storage = await account.post("/networkstorage/create", clusterId=cluster_id, storageName="d", storageSize=10)
    await account.post("/network/create", clusterId=cluster_id, name="n")
    _, networks = await account.get("/networks")
    mounts = [{"Id": storage["storageId"], "mountPoint": "/data"}]

    first = await account.create(clusterId=None, networkStorages=mounts)
    second = await account.create(clusterId=None, networkId=networks["networks"][0]["Id"])

    assert [(await account.instance(each))["clusterId"] for each in (first, second)] == [cluster_id] * 2
    await account.control("POST", "/stock", productId="4090.16c62g", clusterId=cluster_id, free=0)
    full = await account.post("/gpu/instance/create", **creation(clusterId=None, networkStorages=mounts))
    assert full == NO_STOCK


async def test_availability_is_about_the_number_of_gpus_asked_for(account: Account):
    await account.control("POST", "/stock", productId="51", clusterId="us-ca-6", free=4)

    _, four = await account.get("/products", productName="6000 Ada", clusterId="us-ca-6", gpuNum=4)
    _, eight = await account.get("/products", productName="6000 Ada", clusterId="us-ca-6", gpuNum=8)

    assert [each["availableDeploy"] for each in four["data"]] == [True]
    assert [each["availableDeploy"] for each in eight["data"]] == [False]
    body = creation(productId="51", gpuNum=8)
    assert await account.post("/gpu/instance/create", **body) == NO_STOCK


async def test_something_is_sold_out_from_the_first_day(account: Account):
    sold_out = await product(account, "h200.24c220g", "eu-gb-1")

    assert (sold_out["availableDeploy"], sold_out["inventoryState"]) == (False, "none")


async def test_a_cluster_stops_naming_a_gpu_that_it_has_no_more(account: Account):
    await account.control("POST", "/stock", clusterId="oc-au-1", free=0)

    _, answer = await account.get("/clusters")

    available = {each["id"]: each["availableGpuType"] for each in answer["data"]}
    assert available["oc-au-1"] == []
    assert "RTX 4090 24GB" in available["us-ca-6"]


async def test_prices_move_a_little_with_time_and_the_same_way_for_the_same_seed():
    async def prices(seed: int) -> list[tuple[int, int]]:
        async with open_account(SimulatorOptions(seed=seed)) as account:
            seen: list[tuple[int, int]] = []
            for _ in range(5):
                shown = await product(account, "4090.16c62g", "us-ca-6")
                seen.append((int(str(shown["price"])), int(str(shown["spotPrice"]))))
                account.time.passed += 60
            return seen

    first = await prices(1)

    assert len(set(first)) == 5
    assert all(abs(price - 35000) <= 350 and abs(spot - 17500) <= 875 for price, spot in first)
    assert await prices(1) == first
    assert await prices(2) != first


async def test_the_price_of_an_instance_is_fixed_when_it_is_made():
    async with open_account(SimulatorOptions()) as account:
        instance_id = await account.create(billingMode="spot", gpuNum=2)
        before = (await account.instance(instance_id))["instancePrice"]
        account.time.passed += 600

        assert (await account.instance(instance_id))["instancePrice"] == before
        assert 2 * 16625 <= int(before) <= 2 * 18375


def test_stock_can_be_set_below_what_is_taken_without_going_negative():
    catalog = Catalog(seed=1, drift=0)
    assert catalog.take("26", "as-sgp-2", 4)
    catalog.set_stock("26", "as-sgp-2", 0)

    assert catalog.free("26", "as-sgp-2") == 0
    catalog.give_back("26", "as-sgp-2", 4)
    assert catalog.free("26", "as-sgp-2") == 4
