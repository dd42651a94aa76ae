"""Scripted days, and a page that names every call of the control API."""

import re
from pathlib import Path
from typing import Any

import pytest

from server.simulator.control_api import control_actions, control_routes
from server.simulator.faults import FaultKind
from server.simulator.options import SimulatorOptions
from server.simulator.scenario.script import BadScenario, parse_length, read_scenario
from server.simulator.world import World
from tests.server.simulator.account import Account, HandTime, open_account
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "simulator.md").read_text()
DAY = ROOT / "examples" / "scenarios" / "day.toml"


def known() -> Any:
    return control_actions(World(SimulatorOptions())).keys()


def test_the_page_names_every_call_and_every_fault():
    routes = control_routes(World(SimulatorOptions()))
    served = {f"{method} {route.path}" for route in routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    rows = re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(served)
    faults = PAGE.partition("### Faults")[2].partition("### Bills")[0]
    assert {kind for kind in FaultKind if f"`{kind}`" not in faults} == set()


async def test_the_example_day_happens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.simulator.scenario.player.LOOK_EVERY", 0.01)
    async with open_account(SimulatorOptions(price_drift=0, scenario=DAY), HandTime()) as account:
        spot = await account.running(name="trainer-1", billingMode="spot")
        failing = await account.running(name="trainer-01")
        other = await account.running(name="web-1")

        async def at(hours: float, is_so: Any) -> None:
            account.time.passed = hours * 3600
            await until(is_so)

        await at(1.01, lambda: has(account, "free", 1))
        await at(2.1, lambda: has_status(account, failing, "exited"))
        await at(12.1, lambda: has_status(account, spot, "exited"))
        assert await account.status(other) == "running"
        await at(14.1, lambda: faults(account, 2))
        await at(15.1, lambda: faults(account, 0))
        await at(18.1, lambda: sold(account, "4090.late"))
        await at(23.1, lambda: has_status(account, other, "exited"))


async def has(account: Account, field: str, value: int) -> bool:
    stock = (await account.control("GET", "/stock"))["stock"]
    return next(each[field] for each in stock if each["productId"] == "4090.16c62g") == value


async def has_status(account: Account, instance_id: str, status: str) -> bool:
    account.time.passed += 60
    return account.simulator.world.instances[instance_id].status == status


async def faults(account: Account, many: int) -> bool:
    return len(account.simulator.world.faults.active) == many


async def sold(account: Account, product_id: str) -> bool:
    return product_id in account.simulator.world.catalog.products


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "is not TOML"),
        ("speed = 1", "must have [[step]] tables"),
        ('[[step]]\ncall = "POST /nothing"', "step 1: there is no call"),
        ('[[step]]\ncall = "POST /speed"\nwhen = 1', "unknown field when"),
        ('[[step]]\ncall = "POST /speed"\nat = "soon"', "is not a length of time"),
        ('[[step]]\ncall = "POST /speed"\ninstances = "a*"', "give `instances` if"),
        ('[[step]]\ncall = "POST /instances/{id}/exit"', "give `instances` if"),
        ('[[step]]\ncall = "POST /speed"\ntimes = 2', "belong together"),
        ('[[step]]\ncall = "POST /speed"\ntimes = 0\nevery = "1s"', "times must be 1 to"),
    ],
)
def test_a_mistake_is_named_with_its_step(tmp_path: Path, text: str, problem: str):
    path = tmp_path / "day.toml"
    path.write_text(text)
    with pytest.raises(BadScenario, match=re.escape(problem)):
        read_scenario(path, known())


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(BadScenario, match="can't be read"):
        read_scenario(tmp_path / "nothing.toml", known())


def test_lengths_of_time():
    lengths = [parse_length(each) for each in (90, 1.5, "90s", "1h30m", "2d")]
    assert lengths == [90, 1.5, 90, 5400, 172_800]


async def test_one_name_is_sold_twice_in_a_cluster_and_more_can_be_added(tmp_path: Path):
    options, time = SimulatorOptions(price_drift=0, state_file=tmp_path / "state"), HandTime()
    async with open_account(options, time) as account:
        _, l40s = await account.get("/products", clusterId="eu-gb-1", productName="L40S")
        assert sorted(product["price"] for product in l40s["data"]) == ["94000", "99000"]
        added = {"id": "x", "name": "L40S 48GB", "price": 90_000, "stock": {"eu-gb-1": 2}}
        assert (await account.control("POST", "/products", **added))["id"] == "x"
        assert (await account.control("POST", "/products", **added))["reason"] == "VALIDATOR_PARAM"
        assert (await account.control("POST", "/products", **{**added, "id": "y", "stock": {}}))["code"] == 400
        await account.running(productId="x", clusterId="eu-gb-1")

    async with open_account(options, time) as account:
        stock = (await account.control("GET", "/stock"))["stock"]
        assert [each["free"] for each in stock if each["productId"] == "x"] == [1]


async def test_volumes_show_who_has_them_and_metrics_lag_as_set(account: Account):
    _, storage = await account.post("/networkstorage/create", clusterId="us-ca-6", storageName="s", storageSize=10)
    mounts = [{"Id": storage["storageId"], "mountPoint": "/data"}]
    holder = await account.running(networkStorages=mounts)
    refused = await account.post(
        "/gpu/instance/create",
        productId="4090.16c62g",
        gpuNum=1,
        rootfsSize=60,
        imageUrl="u",
        kind="gpu",
        clusterId="us-ca-6",
        networkStorages=mounts,
    )
    assert (refused[0], refused[1]["reason"]) == (400, "NETWORK_STORAGE_IN_USE")
    [shown] = (await account.control("GET", "/volumes"))["volumes"]
    assert (shown["storageId"], shown["instances"]) == (storage["storageId"], [holder])
    await account.control("POST", "/dialect", shares_storages=True, metrics_lag=5)
    await account.running(name="second", networkStorages=mounts)
    account.time.passed += 20
    url = account.simulator.url + "/openapi/v1/metrics/gpu/instance"
    async with account.session.get(url, params={"instanceId": holder}) as answer:
        assert (await answer.json())["cpuUtilization"]
