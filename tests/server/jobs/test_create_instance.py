"""Creating at the provider: at most one machine, whatever fails meanwhile."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from server.config import Settings
from server.enums import Billing, InstanceStatus
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance, TemplateDraft, Tool
from server.simulator.faults import Fault, FaultKind
from tests.support.waiting import until
from tests.support.world import CREATE, LIST, World

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
async def test_create_with_a_lost_response_is_found_and_adopted(world: World, fault: Fault):
    accepted = await world.create("lost")  # its reads of the catalog are not what is to time out
    await world.configure(request_timeout=timedelta(milliseconds=300))
    world.faults(fault)

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    (machine,) = world.machines()
    assert world.made() == 1
    assert world.calls(CREATE) == 1
    assert (await world.instance(accepted.instance.id))["novita_id"] == machine.id
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]


async def test_machine_listed_late_is_waited_for_and_not_created_twice(world: World):
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
    accepted = await world.create("unsure")
    await world.configure(request_timeout=timedelta(milliseconds=500))
    world.faults(Fault(kind, (CREATE,), times=1))

    async def polled_three_times() -> bool:
        return world.calls(LIST) >= 3

    await world.work_until(polled_three_times)

    assert world.calls(CREATE) == 1
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]
    assert (await world.instance(accepted.instance.id))["status"] == InstanceStatus.CREATING

    await world.age_attempts()
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["ABSENT", "CREATED"]
    assert world.made() == 1


async def test_grace_covers_the_time_a_call_waits_for_the_rate_limit(world: World):
    """A call may wait for the rate limit before it is sent, so an old attempt may be a recent request."""
    seconds = timedelta(seconds=1)
    await world.configure(request_deadline=120 * seconds, request_timeout=seconds, create_grace=100 * seconds)
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


async def test_run_that_was_declared_dead_adopts_nothing(world: World):
    """Another worker has taken the job: the late response changes nothing, and the next run finds the machine."""
    accepted = await world.create("late-worker")
    world.faults(Fault(FaultKind.LATENCY, (CREATE,), times=1, seconds=0.3))
    late = asyncio.create_task(world.work_once())

    async def is_calling() -> bool:
        return await world.value("SELECT count(*) FROM attempt") == 1

    await until(is_calling)
    await world.execute(
        "UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL, due_at = now()"
    )
    await late

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["ASKING"]
    assert (await world.instance(accepted.instance.id))["novita_id"] is None
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert world.made() == 1


async def test_region_out_of_stock_is_followed_by_the_next(world: World):
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


async def test_stock_that_runs_out_after_acceptance_is_recorded(world: World):
    accepted = await world.create("too-late", billing=Billing.SPOT)
    world.stock("*", 0)

    operation = await world.work_until_over(accepted.operation.id)

    assert operation["error_code"] == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("CN-HK-01", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
        ("AS-IN-01", "spot", "REJECTED", "INSUFFICIENT_RESOURCE"),
    ]


async def test_in_any_region_spot_everywhere_comes_before_on_demand_by_price(world: World):
    accepted = await world.create("cheap", regions=("ANY",))
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=5, **NO_STOCK))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert [row[:3] for row in await world.attempts(accepted.operation.id)] == [
        ("AS-IN-01", "spot", "REJECTED"),
        ("US-CA-06", "spot", "REJECTED"),
        ("EU-GB-01", "spot", "REJECTED"),
        ("CN-HK-01", "spot", "REJECTED"),
        ("AS-SGP-02", "spot", "REJECTED"),
        ("AS-IN-01", "onDemand", "CREATED"),
    ]


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (400, "NOT_ENOUGH_BALANCE", "BALANCE_EXHAUSTED"),
        (400, "CREATE_INSTANCE_LIMIT", "QUOTA_EXCEEDED"),
        (400, "IMAGE_NOT_FOUND", "IMAGE_NOT_FOUND"),
        (400, "IMAGE_URL_OR_AUTH_ERROR", "IMAGE_URL_OR_AUTH_ERROR"),
        (400, "VALIDATOR_PARAM", "PROVIDER_VALIDATION_FAILED"),
        (400, "A_WORD_OF_TOMORROW", "PROVIDER_VALIDATION_FAILED"),
    ],
)
async def test_error_that_holds_for_every_region_fails_at_once(world: World, status: int, reason: str, code: str):
    accepted = await world.create("broke")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), status=status, reason=reason, message="no"))

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == ("FAILED", code, False)
    assert (await world.instance(accepted.instance.id))["failure_code"] == code
    assert world.calls(CREATE) == 1
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["REJECTED"]


async def test_reason_of_one_product_or_region_is_followed_by_the_next_candidate(world: World):
    accepted = await world.create("driver", billing=Billing.SPOT)
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=1, status=400, reason="CUDA_VERSION_INCOMPATIBLE"))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "REJECTED", "CUDA_VERSION_INCOMPATIBLE"),
        ("CN-HK-01", "spot", "CREATED", None),
    ]


async def test_a_cuda_version_that_no_region_has_is_not_retryable(world: World):
    accepted = await world.create("driver", billing=Billing.SPOT)
    world.faults(Fault(FaultKind.ERROR, (CREATE,), status=400, reason="CUDA_VERSION_INCOMPATIBLE"))

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["error_code"], operation["error_retryable"]) == ("CUDA_VERSION_INCOMPATIBLE", False)
    assert len(await world.attempts(accepted.operation.id)) == 3


async def test_tools_and_cuda_version_of_the_template_are_sent(world: World):
    jupyter = Tool("Jupyter", 8888, "http")
    draft = TemplateDraft("lab", "nginx:1.27", 60, tools=(jupyter,), min_cuda_version="12.4")
    accepted = await world.create("lab", template_id=await world.novita.create_template(draft))
    await world.work_once()

    (machine,) = world.machines()
    assert machine.tools == [{"name": "Jupyter", "port": "8888", "type": "http"}]
    assert (await world.instance(accepted.instance.id))["min_cuda_version"] == "12.4"

    newer = await world.novita.create_template(replace(draft, name="newer", min_cuda_version="99.9"))
    refused = await world.create("newer", template_id=newer)
    operation = await world.work_until_over(refused.operation.id)
    assert (operation["error_code"], operation["error_retryable"]) == ("CUDA_VERSION_INCOMPATIBLE", False)


async def test_404_of_a_gateway_does_not_move_a_spot_create_to_on_demand(world: World):
    await world.configure(create_grace=timedelta(milliseconds=1), request_timeout=timedelta(seconds=5))
    accepted = await world.create("gateway")
    world.faults(Fault(FaultKind.GARBAGE, (CREATE,), times=1, status=404))

    await world.work_once()
    assert [row[1:3] for row in await world.attempts(accepted.operation.id)] == [("spot", "UNKNOWN")]
    await world.age_attempts()
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert await world.attempts(accepted.operation.id) == [
        ("AS-SGP-02", "spot", "ABSENT", "PROVIDER_NOT_FOUND"),
        ("AS-SGP-02", "spot", "CREATED", None),
    ]
    assert world.made() == 1


async def test_rate_limited_create_retries_the_same_region_later(world: World):
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


@pytest.mark.parametrize(("age", "status"), [(50, "UNKNOWN"), (56, "ABSENT")])
async def test_with_default_settings_a_create_that_made_nothing_is_settled_within_a_minute(
    world: World, age: int, status: str
):
    """10 s in which the call may be sent, REQUEST_TIMEOUT of 30 s and CREATE_GRACE of 15 s."""
    await world.configure(request_timeout=Settings.model_fields["request_timeout"].default)
    accepted = await world.create("cut")
    world.faults(Fault(FaultKind.ERROR, (CREATE,)), Fault(FaultKind.ERROR, (LIST,), status=503))
    await world.work_once()
    world.faults(Fault(FaultKind.ERROR, (CREATE,)))
    await world.execute(f"UPDATE attempt SET created_at = now() - interval '{age} seconds'")

    await world.hurry()
    await world.work_once()

    assert (await world.attempts(accepted.operation.id))[0][2] == status


async def test_a_create_that_was_made_is_adopted_by_the_first_run_that_takes_over(world: World):
    accepted = await world.create("taken-over")
    world.novita.__class__ = Dying
    with pytest.raises(asyncio.CancelledError):
        await world.work_once()
    world.novita.__class__ = NovitaClient
    await world.execute("UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL")

    await world.work_once()

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]


class Late(NovitaClient):
    """Its process is paused between the commit of the attempt and the call."""

    async def create_instance(self, request: CreateInstance, *, asked_at: float | None = None, **options: Any) -> str:
        assert asked_at is not None
        return await super().create_instance(request, asked_at=asked_at - 11, **options)


async def test_a_create_is_not_sent_later_than_a_worker_that_takes_over_expects(world: World):
    accepted = await world.create("paused")
    world.novita.__class__ = Late

    await world.work_once()

    assert world.calls(CREATE) == 0
    assert (await world.attempts(accepted.operation.id))[0][2] == "REJECTED"
