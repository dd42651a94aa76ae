"""Creating at the provider: at most one machine, whatever goes wrong on the way."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from server.novita.client import NovitaClient
from server.novita.simulator.faults import Fault, FaultKind
from server.novita.wire import CreateInstance
from server.words import Billing, InstanceStatus
from tests.world import CREATE, LIST, World, until

NO_STOCK: dict[str, Any] = {"status": 400, "reason": "INSUFFICIENT_RESOURCE", "message": "insufficient resource"}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1),
        Fault(FaultKind.ERROR_AFTER, (CREATE,), times=1),
        Fault(FaultKind.HANG_AFTER, (CREATE,), times=1),
        Fault(FaultKind.CUT_JSON, (CREATE,), times=1),
        Fault(FaultKind.CUT_CONNECTION, (CREATE,), times=1),
    ],
    ids=lambda fault: fault.kind.value,
)
async def test_a_create_whose_answer_was_lost_is_found_and_adopted(world: World, fault: Fault):
    await world.configure(request_timeout=timedelta(milliseconds=300))
    accepted = await world.create("lost")
    world.faults(fault)

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    (machine,) = world.machines()
    assert world.made() == 1
    assert world.calls(CREATE) == 1
    assert (await world.instance(accepted.instance.id))["novita_id"] == machine.id
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]


async def test_a_machine_that_the_list_shows_late_is_waited_for_and_not_made_twice(world: World):
    accepted = await world.create("late")
    world.faults(
        Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), times=1, seconds=0.4)
    )

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert world.made() == 1
    assert world.calls(CREATE) == 1
    assert world.calls(LIST) > 1


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.BAD_GATEWAY, FaultKind.DROP, FaultKind.HANG])
async def test_nothing_is_created_again_before_the_grace_is_over(world: World, kind: FaultKind):
    await world.configure(request_timeout=timedelta(milliseconds=200))
    accepted = await world.create("unsure")
    world.faults(Fault(kind, (CREATE,), times=1))

    async def looked_thrice() -> bool:
        return world.calls(LIST) >= 3

    await world.work_until(looked_thrice)

    assert world.calls(CREATE) == 1
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]
    assert (await world.instance(accepted.instance.id))["status"] == InstanceStatus.CREATING

    await world.age_attempts()
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["ABSENT", "CREATED"]
    assert world.made() == 1


async def test_the_grace_covers_the_time_that_a_call_may_have_stood_in_line(world: World):
    """A call may wait in the client's own line before it is sent, so an old attempt may be a young request."""
    seconds = timedelta(seconds=1)
    await world.configure(request_deadline=120 * seconds, request_timeout=seconds, create_grace=seconds)
    accepted = await world.create("queued")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=1))
    await world.work_once()
    await world.execute("UPDATE attempt SET created_at = created_at - interval '100 seconds'")

    await world.hurry()
    await world.work_once()

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]
    assert world.calls(CREATE) == 1


async def test_a_provider_that_never_answers_a_create_ends_the_operation(world: World):
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    accepted = await world.create("hopeless")
    world.faults(Fault(FaultKind.ERROR, (CREATE,)))
    await world.work_once()

    async def is_over() -> bool:
        await world.age_attempts()
        return (await world.operation(accepted.operation.id))["finished_at"] is not None

    await world.work_until(is_over)

    operation = await world.operation(accepted.operation.id)
    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "PROVIDER_ERROR",
        True,
    )
    assert (await world.instance(accepted.instance.id))["status"] == InstanceStatus.FAILED
    assert world.calls(CREATE) == 1
    assert world.made() == 0


class Dying(NovitaClient):
    """Its process ends right after the provider has accepted."""

    async def create_instance(self, request: CreateInstance, **options: Any) -> str:
        await super().create_instance(request, **options)
        raise asyncio.CancelledError


async def test_a_worker_that_dies_between_the_create_and_its_record_leaves_one_machine(world: World):
    accepted = await world.create("crash")
    world.novita.__class__ = Dying
    with pytest.raises(asyncio.CancelledError):
        await world.work_once()
    world.novita.__class__ = NovitaClient
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["ASKING"]
    assert world.made() == 1

    await world.execute("UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert world.made() == 1
    assert world.calls(CREATE) == 1
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]


async def test_a_run_that_was_thought_dead_adopts_nothing(world: World):
    """Its job was taken over meanwhile: the late answer changes nothing, and the successor finds the machine."""
    accepted = await world.create("late-worker")
    world.faults(Fault(FaultKind.LATENCY, (CREATE,), times=1, seconds=0.3))
    late = asyncio.create_task(world.work_once())

    async def is_asking() -> bool:
        return await world.value("SELECT count(*) FROM attempt") == 1

    await until(is_asking)
    await world.execute(
        "UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL, due_at = now()"
    )
    await late

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["ASKING"]
    assert (await world.instance(accepted.instance.id))["novita_id"] is None
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert world.made() == 1


async def test_no_stock_in_one_region_goes_on_to_the_next(world: World):
    accepted = await world.create("roaming", billing=Billing.SPOT)
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=1, **NO_STOCK))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("CN-HK-01", "spot", "CREATED", None),
    ]
    row = await world.instance(accepted.instance.id)
    assert (row["region"], row["product_id"], row["price_per_hour_e5"]) == ("CN-HK-01", "27", 18500)
    assert world.made() == 1


async def test_spot_refused_means_on_demand_in_the_same_region_first(world: World):
    accepted = await world.create("paying")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=1, **NO_STOCK))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("AS-SGP-02", "onDemand", "CREATED", None),
    ]


async def test_when_every_region_refuses_it_fails_and_says_what_was_tried(world: World):
    accepted = await world.create("unlucky", billing=Billing.SPOT)
    world.faults(Fault(FaultKind.ERROR, (CREATE,), **NO_STOCK))

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "NO_OPTIMAL_PRODUCT_ANY_REGION",
        True,
    )
    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("CN-HK-01", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("AS-IN-01", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
    ]
    row = await world.instance(accepted.instance.id)
    assert (row["status"], row["failure_code"]) == ("FAILED", "NO_OPTIMAL_PRODUCT_ANY_REGION")
    assert row["failure_message"] == (
        "AS-SGP-02: insufficient resource (HTTP 400); CN-HK-01: insufficient resource (HTTP 400);"
        " AS-IN-01: insufficient resource (HTTP 400)"
    )
    assert world.made() == 0


async def test_stock_that_ran_out_after_the_acceptance_is_found_out_and_recorded(world: World):
    accepted = await world.create("too-late", billing=Billing.SPOT)
    world.stock("*", 0)

    operation = await world.work_until_over(accepted.operation.id)

    assert operation["error_code"] == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("AS-SGP-02", "spot", "REJECTED", "OUT_OF_STOCK"),
        ("CN-HK-01", "spot", "REJECTED", "OUT_OF_STOCK"),
        ("AS-IN-01", "spot", "REJECTED", "OUT_OF_STOCK"),
    ]
    assert world.calls(CREATE) == 1


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (401, "INVALID_API_KEY", "PROVIDER_AUTH_FAILED"),
        (403, "BANNED_USER", "PROVIDER_AUTH_FAILED"),
        (402, "NOT_ENOUGH_BALANCE", "BALANCE_EXHAUSTED"),
        (400, "CREATE_INSTANCE_LIMIT", "BALANCE_EXHAUSTED"),
    ],
)
async def test_what_holds_for_every_region_fails_at_once(world: World, status: int, reason: str, code: str):
    accepted = await world.create("broke")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), status=status, reason=reason, message="no"))

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == ("FAILED", code, False)
    assert (await world.instance(accepted.instance.id))["failure_code"] == code
    assert world.calls(CREATE) == 1
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["REJECTED"]


async def test_too_fast_for_the_provider_means_the_same_place_again_later(world: World):
    accepted = await world.create("patient")
    world.faults(Fault(FaultKind.RATE_LIMIT, (CREATE,), times=1, retry_after="0"))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "RATE_LIMITED"),
        ("AS-SGP-02", "spot", "CREATED", None),
    ]
    assert world.made() == 1


async def test_an_outage_while_placing_spends_no_attempt_and_the_create_goes_on_after_it(world: World):
    accepted = await world.create("waiting")
    await world.configure()
    world.outage()
    for _ in range(5):
        await world.hurry()
        await world.work_once()

    job = await world.one("SELECT kind, status, attempts, run_at > now() AS is_later FROM job")
    assert tuple(job) == ("CREATE_INSTANCE", "WAITING", 0, True)
    assert (await world.instance(accepted.instance.id))["status"] == InstanceStatus.CREATING

    world.faults()
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert world.made() == 1


async def test_a_job_that_runs_twice_creates_once(world: World):
    accepted = await world.create("twice")
    args = await world.value("SELECT args FROM job")
    await world.work_once()
    await world.execute(
        "INSERT INTO job (kind, args, priority, run_at, due_at) VALUES ('CREATE_INSTANCE', $1, 0, now(), now())", args
    )

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert world.made() == 1
    assert await world.value("SELECT count(*) FROM job") == 0
