"""Each fault does what it says, as often as it says, with the stated effects."""

import asyncio
import time

import aiohttp
import pytest

from server.simulator.faults import Fault, FaultKind
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.server.simulator.account import PREFIX, Account, HandTime, creation, open_account

CREATE = "POST /gpu/instance/create"


async def made(account: Account) -> int:
    return (await account.control("GET", "/state"))["instancesMade"]


async def raw(account: Account, path: str = "/clusters") -> tuple[int, str | None, bytes]:
    async with account.session.get(account.simulator.url + PREFIX + path) as answer:
        return answer.status, answer.headers.get("Retry-After"), await answer.read()


async def test_a_rate_limit_comes_with_or_without_the_time_to_wait(account: Account):
    await account.faults({"kind": "rateLimit", "times": 1, "retryAfter": 7}, {"kind": "rateLimit", "times": 1})

    first, second, third = [await raw(account) for _ in range(3)]

    assert first[:2] == (429, "7")
    assert second[:2] == (429, None)
    assert b'"reason":"RATE_LIMIT_EXCEEDED"' in first[2]
    assert third[0] == 200


async def test_an_error_strikes_only_its_routes_and_only_so_often(account: Account):
    await account.faults({"kind": "error", "routes": ["GET /prod*"], "times": 2, "skip": 1})

    statuses = [(await raw(account, "/products"))[0] for _ in range(4)]

    assert statuses == [200, 500, 500, 200]
    assert (await raw(account, "/clusters"))[0] == 200
    shown = await account.control("GET", "/faults")
    assert [(fault["seen"], fault["struck"]) for fault in shown["faults"]] == [(3, 2)]


async def test_a_create_that_meets_an_error_before_is_not_made(account: Account):
    await account.faults({"kind": "error", "routes": CREATE, "status": 503, "reason": "SERVER_ERROR"})

    status, answer = await account.post("/gpu/instance/create", **creation())

    assert (status, answer["code"], answer["reason"]) == (503, 503, "SERVER_ERROR")
    assert await made(account) == 0


async def test_a_bad_gateway_is_a_page_of_html(account: Account):
    await account.faults({"kind": "badGateway"})

    status, _, body = await raw(account)

    assert (status, body.startswith(b"<html>")) == (502, True)


async def test_garbage_looks_like_success(account: Account):
    await account.faults({"kind": "garbage", "body": "<html>maintenance mode</html>"})

    assert await raw(account) == (200, None, b"<html>maintenance mode</html>")


async def test_cut_json_ends_in_the_middle_after_the_work_is_done(account: Account):
    await account.faults({"kind": "cutJson", "routes": CREATE})

    async with account.session.post(account.simulator.url + PREFIX + "/gpu/instance/create", json=creation()) as answer:
        body = await answer.read()

    assert (answer.status, body[:5], body.endswith(b"}")) == (200, b'{"id"', False)
    assert await made(account) == 1


async def test_a_cut_connection_promises_more_than_it_sends(account: Account):
    await account.faults({"kind": "cutConnection"})

    with pytest.raises(aiohttp.ClientPayloadError):
        await raw(account)


@pytest.mark.parametrize(("kind", "expected"), [("lostAnswer", 1), ("drop", 0)])
async def test_a_lost_answer_is_a_cut_line_after_the_create_and_a_drop_one_before(
    account: Account, kind: str, expected: int
):
    await account.faults({"kind": kind, "routes": CREATE, "times": 1})

    with pytest.raises(aiohttp.ClientConnectionError):
        await account.post("/gpu/instance/create", **creation(name="marker-0123456789"))

    _, listed = await account.get("/gpu/instances", name="marker-0123456789")
    assert listed["total"] == expected
    assert await made(account) == expected


@pytest.mark.parametrize(("kind", "expected"), [("hangAfter", 1), ("hang", 0)])
async def test_a_hanging_call_never_answers_whether_it_was_done_or_not(account: Account, kind: str, expected: int):
    await account.faults({"kind": kind, "routes": CREATE, "times": 1})

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await account.post("/gpu/instance/create", **creation())

    assert await made(account) == expected


async def test_a_simulator_with_hanging_calls_stops_all_the_same():
    simulator = Simulator(SimulatorOptions(faults=(Fault(FaultKind.HANG),)))
    await simulator.start()
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer any"}) as session:
        hanging = asyncio.create_task(raw(Account(simulator, session, HandTime())))
        deadline = time.monotonic() + 30
        while not simulator.world.calls["GET /clusters"]:
            await asyncio.sleep(0.001)
            assert time.monotonic() < deadline

        async with asyncio.timeout(20):
            await simulator.stop()

        with pytest.raises(aiohttp.ClientConnectionError):
            await hanging


async def test_an_error_after_the_create_hides_that_it_was_made(account: Account):
    await account.faults({"kind": "errorAfter", "routes": CREATE, "times": 1})

    assert (await account.post("/gpu/instance/create", **creation()))[0] == 500
    assert await made(account) == 1


async def test_invalid_state_change_though_the_start_was_accepted(account: Account):
    instance_id = await account.running()
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 3
    await account.faults({"kind": "invalidStateAfter", "routes": "POST /gpu/instance/start", "times": 1})

    status, answer = await account.post("/gpu/instance/start", instanceId=instance_id)

    assert (status, answer["message"]) == (400, "invalid state change")
    assert await account.status(instance_id) == "toStart"


async def test_a_spoiled_answer_needs_work_that_was_done(account: Account):
    await account.faults({"kind": "invalidStateAfter", "times": 1})

    assert (await account.get("/gpu/instance", instanceId="nope"))[0] == 404

    shown = await account.control("GET", "/faults")
    assert shown["faults"][0]["struck"] == 0


async def test_an_unknown_status_appears_in_gets_and_lists(account: Account):
    instance_id = await account.running()
    await account.faults({"kind": "unknownStatus", "word": "hibernating"})

    _, listed = await account.get("/gpu/instances")

    assert await account.status(instance_id) == "hibernating"
    assert [each["status"] for each in listed["instances"]] == ["hibernating"]
    await account.control("DELETE", "/faults")
    assert await account.status(instance_id) == "running"


@pytest.mark.parametrize("hide_from_get", [False, True])
async def test_a_new_instance_can_take_a_while_to_be_listed(account: Account, hide_from_get: bool):
    await account.faults({"kind": "listLag", "seconds": 20, "hideFromGet": hide_from_get})
    instance_id = await account.create(name="late-0123456789")
    account.time.passed += 19

    assert (await account.get("/gpu/instances", name="late-0123456789"))[1]["total"] == 0
    assert (await account.get("/gpu/instances"))[1]["total"] == 0
    assert (await account.get("/gpu/instance", instanceId=instance_id))[0] == (404 if hide_from_get else 200)
    account.time.passed += 1.1

    assert (await account.get("/gpu/instances", name="late-0123456789"))[1]["total"] == 1
    assert await account.status(instance_id) == "running"


async def test_the_control_api_shows_every_machine_whatever_the_list_shows(account: Account):
    await account.faults({"kind": "listLag", "seconds": 20}, {"kind": "outage", "routes": ["GET *"]})
    instance_id = await account.create(name="late-0123456789")
    shown = {"id": instance_id, "name": "late-0123456789", "status": "creating", "rootfsSize": 60, "pricePerHour": 0}
    account.time.passed += 1

    assert (await account.control("GET", "/machines"))["machines"] == [shown | {"listed": False}]
    account.time.passed += 19.1

    assert (await account.control("GET", "/machines"))["machines"] == [
        shown | {"status": "running", "listed": True, "pricePerHour": 35_000}
    ]


async def test_latency_delays_the_answer(account: Account):
    await account.faults({"kind": "latency", "seconds": 0.1, "times": 1})
    began = time.monotonic()

    assert (await raw(account))[0] == 200

    assert time.monotonic() - began >= 0.1


async def test_an_outage_answers_503_or_closes_the_line_until_it_is_over(account: Account):
    await account.faults({"kind": "outage", "seconds": 0.15})
    assert (await raw(account))[0] == 503
    assert (await raw(account, "/products"))[0] == 503
    deadline = time.monotonic() + 3
    while (await raw(account))[0] == 503:
        assert time.monotonic() < deadline

    await account.faults({"kind": "outage", "status": 0})
    with pytest.raises(aiohttp.ClientConnectionError):
        await raw(account)


async def test_chances_are_the_same_for_the_same_seed():
    async def statuses(seed: int) -> list[int]:
        fault = Fault(FaultKind.ERROR, probability=0.5)
        async with open_account(SimulatorOptions(seed=seed, faults=(fault,))) as account:
            return [(await raw(account))[0] for _ in range(40)]

    first = await statuses(1)

    assert 8 <= first.count(500) <= 32
    assert await statuses(1) == first
    assert await statuses(2) != first


async def test_a_fault_with_a_typing_error_is_refused_and_the_old_ones_stay(account: Account):
    await account.faults({"kind": "error"})

    for bad in ({"kind": "eror"}, {"kind": "error", "timse": 3}, {"kind": "error", "times": "x"}):
        answer = await account.control("POST", "/faults", faults=[bad])
        assert answer["reason"] == "VALIDATOR_PARAM"

    assert len((await account.control("GET", "/faults"))["faults"]) == 1


async def test_control_counts_what_was_made_under_each_name_even_after_deletion(account: Account):
    first = await account.create(name="twice")
    await account.create(name="twice")
    await account.create(name="once")
    await account.post("/gpu/instance/delete", instanceId=first)
    account.time.passed += 10

    state = await account.control("GET", "/state")

    assert state["madeByName"] == {"twice": 2, "once": 1}
    assert (state["instancesMade"], state["createsAccepted"], state["instances"]) == (3, 3, 2)
    assert state["byStatus"] == {"running": 2}
    assert state["calls"] == {CREATE: 3, "POST /gpu/instance/delete": 1}
