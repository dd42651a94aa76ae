"""Each method of the client against a running server."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from pilotlight_client import (
    AsyncPilotlight,
    Money,
    NotFound,
    OperationFailed,
    Pilotlight,
    Refused,
    Unauthenticated,
    WaitTimedOut,
)
from pilotlight_client.models import InstanceStatus, MarketOffer, OperationInProgress, OperationStatus, ValidationError

from tests.support.processes import Up, control
from tests.support.waiting import until

PRODUCT = "RTX 4090 24GB"


def new_name() -> str:
    return f"client-{uuid4().hex[:12]}"


async def test_a_whole_life(client: AsyncPilotlight):
    name = new_name()
    quote = await client.quote(product=PRODUCT)
    assert quote.best is not None
    accepted = await client.create(
        name=name,
        product=PRODUCT,
        image="nginx",
        ports=[{"port": 80}],
        env={"HF_TOKEN": "secret", "MODE": "fast"},
        labels={"team": "vision"},
        max_hourly_price=Decimal("2.5"),
        lifetime={"max_duration": timedelta(hours=4)},
    )
    assert accepted.instance.status is InstanceStatus.CREATING
    assert not accepted.replayed
    ended = await client.wait(accepted, timeout=timedelta(seconds=60))
    assert ended.status is OperationStatus.SUCCEEDED

    ready = await client.get(name)
    assert (ready.id, ready.status, ready.labels) == (accepted.instance.id, InstanceStatus.READY, {"team": "vision"})
    assert ready.max_hourly_price == Money(2_500_000)
    assert {each.key: (each.secret, each.value) for each in ready.env} == {
        "HF_TOKEN": (True, None),
        "MODE": (False, "fast"),
    }
    assert ready.lifetime is not None
    assert ready.lifetime.max_duration == timedelta(hours=4)
    assert (await client.ssh_access(name)).command.startswith("ssh ")
    assert [each.id async for each in client.list(name_starts_with=name)] == [ready.id]

    later = await client.extend(name, by=timedelta(hours=1))
    assert later.lifetime is not None
    assert later.lifetime.next is not None
    assert ready.lifetime.next is not None
    assert later.lifetime.next.at - ready.lifetime.next.at == timedelta(hours=1)
    assert await client.heartbeat(name) is None  # there is no such limit
    updated = await client.update(name, labels={"team": "speech"})
    await client.wait(updated)
    await client.wait(await client.stop(name))
    await client.wait(await client.start(name))
    await client.wait(await client.restart(name))
    deleted = await client.delete(name)
    await client.wait(deleted)
    assert (await client.get(ready.id)).status is InstanceStatus.DELETED
    with pytest.raises(NotFound):
        await client.get(name)


async def test_a_create_waits_for_capacity_and_the_market_is_read(client: AsyncPilotlight, running: Up):
    async def set_stock(free: int) -> None:
        stock = {"productId": "26", "clusterId": "as-sgp-2", "free": free}
        await control(running.ready["simulatorUrl"], "stock", stock)

    await set_stock(0)
    alert = await client.create_alert(
        product_names=[PRODUCT], billing_modes=["SPOT"], price_at_most=Decimal("0.001"), cooldown=timedelta(hours=2)
    )
    assert [(each.id, each.cooldown) async for each in client.alerts()] == [(alert.id, timedelta(hours=2))]
    accepted = await client.create(
        name=new_name(),
        product=PRODUCT,
        image="nginx",
        regions=["AS-SGP-02"],
        billing="SPOT",
        on_no_capacity={"wait": {"for": timedelta(hours=2)}, "priority": 80},
    )
    async for operation in client.follow(accepted.operation.id, timeout=timedelta(seconds=60)):
        if operation.wait is not None:
            assert (operation.wait.priority, operation.wait.position) == (80, 1)
            break
    changed = await client.update_wait(accepted.operation.id, priority=90)
    assert changed.wait is not None
    assert changed.wait.priority == 90
    found = list[MarketOffer]()

    async def is_polled() -> bool:
        found[:] = await client.market(product_names=[PRODUCT], billing_modes=["SPOT"], regions=["AS-SGP-02"])
        return [each.is_available for each in found] == [False]

    await until(is_polled)
    (offer,) = found
    assert offer.price_per_hour is not None
    assert (offer.product_name, offer.gpu_count, offer.price_per_hour.currency) == (PRODUCT, 1, "USD")
    buckets = await client.offer_history(PRODUCT, region="AS-SGP-02", since=offer.seen_at - timedelta(hours=1))
    assert len(buckets) >= 1
    assert buckets[0].from_ <= offer.seen_at

    await client.delete_alert(alert.id)
    await client.cancel(accepted.operation.id)
    await set_stock(16)


def test_the_synchronous_client_does_the_same(sync_client: Pilotlight):
    name = new_name()
    accepted = sync_client.create(name=name, product=PRODUCT, image="nginx")
    assert sync_client.wait(accepted, timeout=60).status is OperationStatus.SUCCEEDED
    statuses = [each.status for each in sync_client.follow(accepted.operation.id)]
    assert statuses[-1] is OperationStatus.SUCCEEDED
    assert [each.name for each in sync_client.list(name_starts_with=name)] == [name]
    sync_client.wait(sync_client.delete(name))


async def test_every_page_of_a_list_is_read(client: AsyncPilotlight, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pilotlight_client.requests.PAGE", 2)
    prefix = new_name()
    made = [(await client.create(name=f"{prefix}-{number}", product=PRODUCT, image="nginx")) for number in range(5)]

    found = [each.id async for each in client.list(name_starts_with=prefix)]

    assert found == [each.instance.id for each in reversed(made)]
    await asyncio.gather(*(client.delete(each.instance.id) for each in made))


async def test_a_refusal_is_raised_with_every_reason_and_path(client: AsyncPilotlight):
    with pytest.raises(Refused) as refused:
        await client.create(name="", product=PRODUCT, image="nginx", gpu_count=99)

    assert {(type(each), each.code, each.path) for each in refused.value.errors} == {
        (ValidationError, "INVALID_INSTANCE_NAME", ("input", "name")),
        (ValidationError, "INVALID_GPU_COUNT", ("input", "gpuCount")),
    }


async def test_a_refusal_has_the_fields_of_its_type(client: AsyncPilotlight, running: Up):
    simulator = running.ready["simulatorUrl"]
    await control(simulator, "faults", {"faults": [{"kind": "latency", "seconds": 3}]})  # the create is still open
    accepted = await client.create(name=new_name(), product=PRODUCT, image="nginx")

    with pytest.raises(Refused) as refused:
        await client.stop(accepted.instance.id)
    await control(simulator, "faults", {"faults": []})

    (error,) = refused.value.errors
    assert isinstance(error, OperationInProgress)
    assert error.operation.id == accepted.operation.id
    await client.delete(accepted.instance.id)


async def test_the_same_key_gives_the_same_instance(client: AsyncPilotlight):
    key, name = new_name(), new_name()
    first = await client.create(name=name, product=PRODUCT, image="nginx", idempotency_key=key)
    second = await client.create(name=name, product=PRODUCT, image="nginx", idempotency_key=key)

    assert (first.instance.id, first.replayed) == (second.instance.id, False)
    assert second.replayed
    await client.delete(name)


async def test_a_check_writes_nothing(client: AsyncPilotlight):
    name = new_name()
    await client.check(name=name, product=PRODUCT, image="nginx")
    with pytest.raises(NotFound):
        await client.get(name)
    with pytest.raises(Refused):
        await client.check(name=name, product="no such product", image="nginx")


async def test_a_failed_operation_is_raised_with_its_reason(running: Up, client: AsyncPilotlight):
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "pullFailure"}]})
    try:
        accepted = await client.create(name=new_name(), product=PRODUCT, image="nginx")
        with pytest.raises(OperationFailed) as failed:
            await client.wait(accepted, timeout=60)
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})
    assert failed.value.operation.status is OperationStatus.FAILED
    assert failed.value.operation.error is not None
    await client.delete(accepted.instance.id)


async def test_a_wait_that_times_out_leaves_the_operation_alone(client: AsyncPilotlight):
    accepted = await client.create(name=new_name(), product=PRODUCT, image="nginx")
    with pytest.raises(WaitTimedOut) as timed_out:
        await client.wait(accepted, timeout=0.05)
    assert timed_out.value.operation.id == accepted.operation.id
    assert (await client.wait(accepted.operation.id, timeout=60)).status is OperationStatus.SUCCEEDED
    await client.delete(accepted.instance.id)


async def test_a_wrong_token_is_refused_at_once(running: Up):
    async with AsyncPilotlight(running.graphql_url, "pl_wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.get("web")
        with pytest.raises(Unauthenticated):
            await anext(stranger.watch("inst_" + "0" * 32))


async def test_a_time_without_a_zone_is_refused(client: AsyncPilotlight):
    with pytest.raises(ValueError, match="no time zone"):
        await client.extend("inst_" + "0" * 32, until=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(Refused):
        await client.extend("inst_" + "0" * 32, until=datetime(2030, 1, 1, tzinfo=UTC))
