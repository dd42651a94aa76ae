"""From an accepted create to READY, without errors."""

from server.enums import InstanceStatus, OperationStatus
from server.instances.drafts import Port
from tests.support.world import CREATE, World

POLL_EVENTS = ("instance.changed", "health.checked")  # how many of these there are depends on the number of polls


async def test_an_accepted_create_becomes_ready_and_says_every_step(world: World):
    accepted = await world.create("web", ports=(Port(80, "http"),))

    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == OperationStatus.SUCCEEDED
    assert operation["phase"] == "OVER"
    assert operation["error_code"] is None
    types = [each for each in await world.event_types(accepted.instance.id) if each not in POLL_EVENTS]
    assert types == [
        "instance.created",
        "operation.started",
        "operation.changed",
        "attempt.finished",
        "operation.changed",
        "instance.starting",
        "operation.changed",
        "instance.running",
        "instance.health_checking",
        "instance.ready",
        "operation.finished",
    ]
    assert world.made("web-") == 1
    assert world.calls(CREATE) == 1


async def test_the_instance_says_where_it_was_made_and_at_what_price(world: World):
    accepted = await world.create("web", ports=(Port(80, "http"),))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    row = await world.instance(accepted.instance.id)
    (machine,) = world.machines()
    assert row["novita_id"] == machine.id
    assert (row["region"], row["product_id"], row["billing_mode"]) == ("AS-SGP-02", "26", "spot")
    assert row["price_per_hour_e5"] == 19500
    assert row["novita_status"] == "running"
    assert row["failure_code"] is None
    assert row["created_at"] < row["running_at"] < row["ready_at"]
    assert await world.attempts(accepted.operation.id) == [("AS-SGP-02", "spot", "CREATED", None)]
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_without_an_http_port_it_is_ready_as_soon_as_it_runs(world: World):
    accepted = await world.create("batch", ports=(Port(22, "tcp"),))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    types = await world.event_types(accepted.instance.id)
    assert "instance.health_checking" not in types
    assert types[-3:] == ["instance.running", "instance.ready", "operation.finished"]
    assert await world.value("SELECT count(*) FROM job") == 0
