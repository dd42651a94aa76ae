"""Edit, upgrade, migrate and billing of an existing instance."""

import pytest

from tests.server.simulator.account import START, Account

MONTH = 30 * 86400


async def test_edited_ports_get_their_addresses_without_a_restart(account: Account):
    instance_id = await account.running()
    before = (await account.instance(instance_id))["portMappings"]

    ports = [{"port": 8888, "type": "http"}, {"port": 9000, "type": "http"}]
    answer = await account.post("/gpu/instance/edit", instanceId=instance_id, ports=ports, expandRootDisk=40)
    at_once = await account.instance(instance_id)
    account.time.passed += 3
    later = await account.instance(instance_id)

    assert answer == (200, {})
    assert (at_once["status"], at_once["rootfsSize"]) == ("running", 100)
    assert at_once["portMappings"] == [before[0], {"port": 9000, "type": "http", "endpoint": ""}]
    assert later["portMappings"][0] == before[0]
    assert later["portMappings"][1]["endpoint"].startswith("http://127.0.0.1:")


async def test_an_upgrade_changes_image_and_settings_on_the_same_machine(account: Account):
    instance_id = await account.running(envs=[{"key": "OLD", "value": "1"}])

    answer = await account.post(
        "/gpu/instance/upgrade",
        instanceId=instance_id,
        imageUrl="ubuntu:24.04",
        envs=[{"key": "NEW", "value": "2"}],
        command="sleep 1",
        save=True,
    )
    path = await account.statuses_until(instance_id, "running")

    assert answer == (200, {})
    assert path == ["toReset", "resetting", "pulling", "running"]
    shown = await account.instance(instance_id)
    assert (shown["imageUrl"], shown["command"]) == ("ubuntu:24.04", "sleep 1")
    assert shown["envs"] == [{"key": "NEW", "value": "2"}]
    assert account.simulator.world.catalog.taken["4090.16c62g", "us-ca-6"] == 1


async def test_while_a_job_is_under_way_little_else_is_offered_but_delete_is(account: Account):
    instance_id = await account.running()
    await account.post("/gpu/instance/migrate", instanceId=instance_id)
    account.time.passed += 1

    shown = await account.instance(instance_id)
    assert (shown["status"], [job["type"] for job in shown["jobs"]]) == ("migrating", ["instanceMigrate"])
    for action in ("edit", "restart", "migrate"):
        status, answer = await account.post(f"/gpu/instance/{action}", instanceId=instance_id)
        assert (status, answer["reason"]) == (400, "OPERATION_LIMIT")
    assert (await account.post("/gpu/instance/delete", instanceId=instance_id))[0] == 200


async def test_automatic_migration_is_remembered(account: Account):
    instance_id = await account.running()

    answer = await account.post("/gpu/instance/setAutoMigrate", instanceId=instance_id, autoMigrateOpen=True)

    assert answer == (200, {})
    assert (await account.instance(instance_id))["autoMigrateOpen"] is True


async def test_a_subscription_has_an_end_can_be_renewed_and_not_deleted(account: Account):
    instance_id = await account.running()

    assert await account.post("/gpu/instance/transToMonthlyInstance", instanceId=instance_id, month=1) == (200, {})
    shown = await account.instance(instance_id)
    assert (shown["billingMode"], shown["endTime"]) == ("monthly", str(int(START + 12 + MONTH)))
    assert await account.post("/gpu/instance/renewInstance", instanceId=instance_id, month=2) == (200, {})
    assert (await account.instance(instance_id))["endTime"] == str(int(START + 12 + 3 * MONTH))

    status, answer = await account.post("/gpu/instance/delete", instanceId=instance_id)
    assert (status, answer["reason"]) == (400, "PREPAID_INSTANCE_NOT_SUPPORT_RELEASE")
    assert await account.status(instance_id) == "running"


async def test_a_renewal_needs_a_subscription_that_has_started(account: Account):
    on_demand = await account.running()
    young = await account.create(billingMode="monthly", month=1)

    reasons = [
        (await account.post("/gpu/instance/renewInstance", instanceId=each, month=1))[1]["reason"]
        for each in (on_demand, young)
    ]

    assert reasons == ["UNSUPPORTED_BILLING_MODE", "CREATING_INSTANCE_NOT_SUPPORT_RENEWAL"]


@pytest.mark.parametrize("action", ["edit", "upgrade", "migrate"])
async def test_a_change_needs_an_instance_that_runs_or_is_stopped(account: Account, action: str):
    instance_id = await account.create()

    status, answer = await account.post(f"/gpu/instance/{action}", instanceId=instance_id, imageUrl="x")

    assert (status, answer["message"]) == (400, "invalid state change")
