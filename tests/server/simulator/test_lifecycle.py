"""States over time, as observed at the provider."""

import re

import pytest

from tests.server.simulator.account import START, Account

INVALID = (400, {"code": 400, "reason": "", "message": "invalid state change", "metadata": {}})


async def test_a_new_instance_is_created_pulled_and_runs_within_eight_seconds(account: Account):
    """Some are pending first, which is undocumented."""
    firsts: set[str] = set()
    for number in range(4):
        began = account.time.passed
        path = await account.statuses_until(await account.create(name=f"n-{number}"), "running")
        firsts.add(path[0])
        assert path[-4:] == ["toCreate", "creating", "pulling", "running"]
        assert 4.8 <= account.time.passed - began <= 8.5

    assert firsts == {"pending", "toCreate"}


async def test_stop_start_and_restart_go_through_their_own_states(account: Account):
    instance_id = await account.running()

    assert await account.post("/gpu/instance/stop", instanceId=instance_id) == (
        200,
        {"instanceId": instance_id, "state": "toStop"},
    )
    assert await account.statuses_until(instance_id, "exited") == ["toStop", "stopping", "exited"]

    assert await account.post("/gpu/instance/start", instanceId=instance_id) == (
        200,
        {"instanceId": instance_id, "state": "toStart"},
    )
    path = await account.statuses_until(instance_id, "running")
    assert path in (["toStart", "starting", "running"], ["toStart", "starting", "pulling", "running"])

    assert await account.post("/gpu/instance/restart", instanceId=instance_id) == (
        200,
        {"instanceId": instance_id, "state": "toRestart"},
    )
    assert await account.statuses_until(instance_id, "running") == ["toRestart", "restarting", "running"]


async def test_a_deleted_instance_passes_through_removed_and_is_then_not_found(account: Account):
    instance_id = await account.running()

    assert await account.post("/gpu/instance/delete", instanceId=instance_id) == (200, {})
    assert await account.statuses_until(instance_id, "removed") == ["toRemove", "removing", "removed"]
    assert await account.post("/gpu/instance/delete", instanceId=instance_id) == (200, {})
    account.time.passed += 5

    assert (await account.get("/gpu/instance", instanceId=instance_id))[0] == 404
    assert await account.get("/gpu/instances") == (200, {"instances": [], "total": 0})


@pytest.mark.parametrize("waited", [0, 1, 3, 12])
async def test_delete_is_legal_whatever_the_state(account: Account, waited: float):
    instance_id = await account.create()
    account.time.passed += waited

    assert (await account.post("/gpu/instance/delete", instanceId=instance_id))[0] == 200
    account.time.passed += 6

    assert (await account.get("/gpu/instance", instanceId=instance_id))[0] == 404


async def test_a_command_in_the_wrong_state_is_refused_and_changes_nothing(account: Account):
    instance_id = await account.create()
    for action in ("start", "stop", "restart"):
        assert await account.post(f"/gpu/instance/{action}", instanceId=instance_id) == INVALID
    account.time.passed += 12
    assert await account.post("/gpu/instance/start", instanceId=instance_id) == INVALID
    assert await account.status(instance_id) == "running"

    await account.post("/gpu/instance/stop", instanceId=instance_id)
    assert await account.post("/gpu/instance/stop", instanceId=instance_id) == INVALID
    account.time.passed += 3
    assert await account.post("/gpu/instance/restart", instanceId=instance_id) == INVALID
    assert await account.status(instance_id) == "exited"


async def test_endpoints_and_ssh_are_there_only_while_it_runs(account: Account):
    instance_id = await account.create()
    early = await account.instance(instance_id)
    account.time.passed += 12
    running = await account.instance(instance_id)
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    stopping = await account.instance(instance_id)

    for shown in (early, stopping):
        assert [each["endpoint"] for each in shown["portMappings"]] == ["", ""]
        assert shown["connectComponentSSH"] == {"sshCommand": "", "password": "", "isRunning": False}
    http, tcp = running["portMappings"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", http["endpoint"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+", tcp["endpoint"])
    assert re.fullmatch(r"ssh -p \d+ root@\S+", running["connectComponentSSH"]["sshCommand"])
    assert running["connectComponentJupyter"] == {"port": 8888, "address": http["endpoint"], "isRunning": True}


async def test_each_start_brings_another_ssh_port_and_password(account: Account):
    instance_id = await account.running()
    seen = [(await account.instance(instance_id))["connectComponentSSH"]]

    await account.post("/gpu/instance/restart", instanceId=instance_id)
    account.time.passed += 5
    seen.append((await account.instance(instance_id))["connectComponentSSH"])
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 5
    await account.post("/gpu/instance/start", instanceId=instance_id)
    account.time.passed += 12
    seen.append((await account.instance(instance_id))["connectComponentSSH"])

    assert len({each["sshCommand"] for each in seen}) == 3
    assert len({each["password"] for each in seen}) == 3


async def test_timestamps_are_wall_time_and_use_time_grows_only_while_running(account: Account):
    instance_id = await account.running()
    shown = await account.instance(instance_id)
    started = int(shown["lastStartedAt"])
    assert START + 4 <= started <= START + 9
    account.time.passed += 100
    assert int((await account.instance(instance_id))["useTime"]) == pytest.approx(START + 112 - started, abs=1)

    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 500
    stopped = await account.instance(instance_id)

    assert int(stopped["useTime"]) == pytest.approx(START + 112 - started, abs=1)
    assert int(stopped["lastStoppedAt"]) == pytest.approx(START + 113.5, abs=1.5)


async def test_time_passes_faster_when_the_speed_is_raised_while_it_runs(account: Account):
    instance_id = await account.create()

    assert await account.control("POST", "/speed", speed=100) == {"speed": 100.0}
    account.time.passed += 0.1

    assert await account.status(instance_id) == "running"


async def test_a_failed_pull_ends_exited_with_the_reason_and_gives_the_gpu_back(account: Account):
    await account.faults({"kind": "pullFailure", "times": 1})
    instance_id = await account.create(imageUrl="nobody/nothing:1")
    fine = await account.create()

    assert (await account.statuses_until(instance_id, "exited"))[-3:] == ["creating", "pulling", "exited"]

    shown = await account.instance(instance_id)
    assert shown["statusError"] == {
        "state": "pulling",
        "message": "failed to pull image nobody/nothing:1: manifest unknown",
    }
    assert account.simulator.world.catalog.taken["4090.16c62g", "us-ca-6"] == 1
    account.time.passed += 5
    assert await account.status(fine) == "running"


async def test_control_can_fail_a_pull_end_a_container_and_freeze_an_account(account: Account):
    pulling, ended, frozen = await account.create(), await account.create(), await account.create()
    await account.control("POST", f"/instances/{pulling}/fail-pull")
    account.time.passed += 12
    shown = await account.instance(pulling)
    assert (shown["status"], shown["statusError"]["state"]) == ("exited", "pulling")

    await account.control("POST", f"/instances/{ended}/exit", code=137)
    shown = await account.instance(ended)
    assert (shown["status"], shown["statusError"]["message"]) == ("exited", "container exited with code 137")

    await account.control("POST", f"/instances/{frozen}/freeze")
    assert await account.statuses_until(frozen, "exited") == ["freezing", "exited"]


async def test_a_spot_instance_is_reclaimed_in_the_documented_order(account: Account):
    instance_id = await account.running(billingMode="spot")
    shown = await account.instance(instance_id)
    assert (shown["spotStatus"], shown["spotReclaimTime"]) == ("running", "0")

    await account.control("POST", "/reclaim", instanceId=instance_id)
    notified = await account.instance(instance_id)
    assert (notified["status"], notified["spotStatus"]) == ("running", "notified")
    assert notified["spotReclaimTime"] == str(int(START + account.time.passed + 3600))
    assert (await account.post("/gpu/instance/migrate", instanceId=instance_id)) == INVALID

    account.time.passed += 3600.1
    reclaiming = await account.instance(instance_id)
    assert (reclaiming["status"], reclaiming["spotStatus"]) == ("stopping", "reclaiming")

    account.time.passed += 2
    gone = await account.instance(instance_id)
    assert (gone["status"], gone["spotStatus"]) == ("exited", "terminated")
    assert gone["spotReclaimTime"] == notified["spotReclaimTime"]

    status, answer = await account.post("/gpu/instance/migrate", instanceId=instance_id)
    assert (status, list(answer)) == (200, ["jobId"])
    assert await account.statuses_until(instance_id, "running") == ["migrating", "pulling", "running"]
    back = await account.instance(instance_id)
    assert (back["spotStatus"], back["spotReclaimTime"], back["jobs"]) == ("running", "0", [])


async def test_a_storm_reclaims_what_runs_in_one_region_within_a_time(account: Account):
    spot = [await account.running(billingMode="spot") for _ in range(4)]
    await account.running()
    cluster = (await account.instance(spot[0]))["clusterId"]

    elsewhere = await account.control("POST", "/reclaim", clusterId="eu-1", withinSeconds=60)
    answer = await account.control("POST", "/reclaim", clusterId=cluster, withinSeconds=60, noticeSeconds=100)

    assert (elsewhere, answer) == ({"reclaimed": []}, {"reclaimed": spot})
    counts: list[int] = []
    for _ in range(5):
        counts.append([(await account.instance(each))["spotStatus"] for each in spot].count("notified"))
        account.time.passed += 15
    assert counts == [1, 2, 3, 4, 4]
    account.time.passed += 100
    assert [(await account.instance(each))["status"] for each in spot] == ["exited"] * 4


async def test_a_reclaim_by_chance_is_drawn_when_the_instance_is_made(account: Account):
    await account.faults({"kind": "spotReclaim", "seconds": 30})
    spot = await account.running(billingMode="spot")
    on_demand = await account.running()

    account.time.passed += 30
    assert (await account.instance(spot))["spotStatus"] == "notified"
    assert (await account.instance(on_demand))["spotStatus"] == ""


async def test_only_a_running_spot_instance_can_be_reclaimed(account: Account):
    instance_id = await account.running()

    answer = await account.control("POST", "/reclaim", instanceId=instance_id)

    assert answer["message"] == "invalid state change"
    assert (await account.instance(instance_id))["spotStatus"] == ""
