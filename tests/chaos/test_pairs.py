"""Every fault of the provider with every verb, interruption and dialect, pairwise: no machine is billed unseen.

The worlds are in this process: the real handlers against a simulator that is fast. After each case there is one
reconcile, then every machine with our marker must be accounted for. At the end no operation may have failed for our own
fault, and no create may have made two machines.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from server.db.database import Database
from server.db.notify import Notifier
from server.enums import InstanceStatus, OperationKind
from server.errors import Refused
from server.instances.provider import sweep_schedule
from server.novita.client import NovitaClient
from server.novita.transport.retry import RetryPolicy
from server.queue.control import cancel_job
from server.queue.kinds import Reconcile
from server.simulator.dialect import Dialect
from server.simulator.faults import Fault, FaultKind
from tests.chaos.own_faults import FAILURES, Failure, own_faults
from tests.chaos.schedule import DIALECTS
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import ROUTES, Dying, ask, cancel, rescue
from tests.support.pairs import Case, all_pairs, pairs_of
from tests.support.world import CREATE, World, a_simulator

DELETE = "POST /gpu/instance/delete"
ROUTE_OF = {**ROUTES, OperationKind.CREATE: CREATE, OperationKind.DELETE: DELETE}
INTERRUPTIONS = ("none", "cancel", "cancel job", "delete", "outage", "restart", "wrong key")
FACTORS: dict[str, list[Any]] = {
    "fault": [None, *FaultKind],
    "verb": list(ROUTE_OF),
    "interruption": list(INTERRUPTIONS),
    "dialect": list(range(len(DIALECTS))),
}
CASES = all_pairs(FACTORS)
ROUNDS = 80  # of work, by which every operation must have ended
# What the case itself does to a machine or an operation, besides what chaos does.
EXCUSED = frozenset({"READY_TIMEOUT"})


def test_the_cases_have_every_two_values_together():
    pairs = set[Any]().union(*(pairs_of(case) for case in CASES))

    assert len(CASES) < 170
    for one, values in FACTORS.items():
        for other, others in FACTORS.items():
            if list(FACTORS).index(one) < list(FACTORS).index(other):
                assert {((one, a), (other, b)) for a in values for b in others} <= pairs


@pytest.fixture
async def pair_world(
    request: pytest.FixtureRequest, database: Database, signals: Notifier, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A world whose provider speaks the dialect, takes one key, and lets its list be read as often as one likes."""
    monkeypatch.setattr(sweep_schedule, "INTERVAL_MIN", 0.01)
    dialect = Dialect().changed(DIALECTS[request.param])
    async with a_simulator(dialect=dialect, api_keys=("the-right-key",)) as simulator:
        world = World(database, signals, simulator)
        await world.open()
        await world.configure(
            request_timeout=timedelta(seconds=0.3),
            health_check_timeout=timedelta(seconds=0.5),
            novita_rate_limit=60_000,
        )
        try:
            yield world
        finally:
            await world.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pair_world", range(len(DIALECTS)), indirect=True)
async def test_every_machine_is_accounted_for_after_one_reconcile(pair_world: World, request: pytest.FixtureRequest):
    world, wrong = pair_world, list[str]()
    cases = [case for case in CASES if case["dialect"] == request.node.callspec.params["pair_world"]]
    cancelled: set[str] = set()

    for number, case in enumerate(cases):
        problems = await _run(world, case, f"case-{number}", cancelled)
        wrong += [f"{_words(case)}: {problem}" for problem in problems]

    assert wrong == []


async def _run(world: World, case: Case, name: str, cancelled: set[str]) -> list[str]:
    """The violations of one case."""
    verb: OperationKind = case["verb"]
    began = await world.value("SELECT clock_timestamp()")
    instance_id = None if verb is OperationKind.CREATE else await _instance_for(world, verb, name)
    _inject(world, case)
    if instance_id is None:
        accepted = await world.create(name)
        instance_id, operation_id = accepted.instance.id, accepted.operation.id
    elif verb is OperationKind.DELETE:
        operation_id = await world.delete(instance_id)
    else:
        operation_id = (await ask(world, verb, instance_id)).operation.id
    await _interrupt(world, case["interruption"], instance_id, operation_id, cancelled)
    world.faults()
    _let_time_pass(world)
    await _reconcile(world)
    problems = await machines_unaccounted(world)
    problems += await _settle(world)
    await _reconcile(world)
    problems += await machines_unaccounted(world)
    problems += await _own_faults(world, began, cancelled)
    many = world.made(f"{name}-pl")
    if many > 1:
        problems.append(f"{many} machines were made for one create")
    await _clear(world, instance_id)
    return problems


async def _instance_for(world: World, verb: OperationKind, name: str) -> UUID:
    """A READY instance that a create made, or a stopped one for a start."""
    accepted = await world.create(name)
    await _settle(world)
    if verb is OperationKind.START:
        await ask(world, OperationKind.STOP, accepted.instance.id)
        await _settle(world)
    return accepted.instance.id


def _inject(world: World, case: Case) -> None:
    kind: FaultKind | None = case["fault"]
    if kind is None:
        return
    route = ROUTE_OF[case["verb"]]
    match kind:
        case FaultKind.UNKNOWN_STATUS:
            fault = Fault(kind, ("GET *",), times=3)
        case FaultKind.OUTAGE:
            fault = Fault(kind, times=3, status=0)
        case FaultKind.RATE_LIMIT:
            fault = Fault(kind, (route,), times=2, retry_after="1")
        case FaultKind.LATENCY:
            fault = Fault(kind, (route,), times=2, seconds=0.02)
        case FaultKind.LIST_LAG:
            fault = Fault(kind, (route,), times=1, seconds=3, hide_from_get=True)
        case FaultKind.SPOT_RECLAIM:
            fault = Fault(kind, (route,), times=1, seconds=0.01)
        case _:
            fault = Fault(kind, (route,), times=1)
    world.faults(fault)


async def _interrupt(
    world: World, interruption: str, instance_id: UUID, operation_id: UUID, cancelled: set[str]
) -> None:
    """After the first run of the operation's job, or in the middle of it."""
    if interruption not in ("restart", "wrong key"):
        await world.work_once()
    match interruption:
        case "restart":
            await _die(world)
        case "wrong key":
            await _work_with_wrong_key(world)
        case "cancel":
            cancelled.add(f"op_{operation_id.hex}")
            with contextlib.suppress(Refused):
                await cancel(world, operation_id)
        case "cancel job":
            cancelled.add(f"op_{operation_id.hex}")
            for row in await world.rows(
                "SELECT id FROM job WHERE instance_id = $1 AND kind <> 'SEND_WEBHOOK'", instance_id
            ):
                async with world.database.write() as session:
                    await cancel_job(session, row["id"])
        case "delete":
            with contextlib.suppress(Refused):
                await world.delete(instance_id)
        case "outage":
            await _long_outage(world, operation_id)
        case _:
            pass
    await world.hurry()
    await world.work_once()


async def _long_outage(world: World, operation_id: UUID) -> None:
    """As if the provider had been away for longer than it is waited for."""
    injected = list(world.simulator.world.faults.active)
    world.outage()
    await world.execute(
        "UPDATE operation SET created_at = created_at - interval '2 hours', asked_at = asked_at - interval '2 hours' "
        "WHERE id = $1",
        operation_id,
    )
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    world.faults(*injected)


class DyingAnywhere(Dying):
    """Its process ends right after the provider has accepted a create, a delete or any other verb."""

    async def create_instance(self, *args: Any, **options: Any) -> str:
        await super().create_instance(*args, **options)
        raise asyncio.CancelledError

    async def delete_instance(self, *args: Any, **options: Any) -> None:
        await super().delete_instance(*args, **options)
        raise asyncio.CancelledError


async def _die(world: World) -> None:
    world.novita.__class__ = DyingAnywhere
    with contextlib.suppress(asyncio.CancelledError):
        await world.work_once()
    world.novita.__class__ = NovitaClient
    await rescue(world)


async def _work_with_wrong_key(world: World) -> None:
    client = NovitaClient(
        base_url=world.simulator.url,
        api_key=SecretStr("another-key"),
        request_timeout=world.settings.request_timeout,
        rate_limit_per_minute=0,
        breaker_threshold=0,
        retry=RetryPolicy(attempts=1),
    )
    await client.open()
    worker = world.worker_with(client)
    for _ in range(3):
        await world.hurry()
        await world.work_once(worker)
    await client.close()


async def _settle(world: World) -> list[str]:
    """Work until no operation is open and no attempt is in doubt; pauses and grace periods are over at once."""
    left = 0
    for _ in range(ROUNDS):
        left = await world.value(
            "SELECT (SELECT count(*) FROM operation WHERE finished_at IS NULL)"
            " + (SELECT count(*) FROM attempt WHERE status IN ('ASKING', 'UNKNOWN'))"
        )
        if not left:
            return []
        _let_time_pass(world)
        await world.age_attempts()
        await world.execute("UPDATE operation SET asked_at = asked_at - interval '1 day' WHERE finished_at IS NULL")
        await world.hurry()
        await world.work_once()
    rows = await world.rows("SELECT kind, status, phase FROM operation WHERE finished_at IS NULL")
    return [f"still open after {ROUNDS} rounds: {[tuple(row) for row in rows]}, {left} with attempts in doubt"]


def _let_time_pass(world: World) -> None:
    """All of the provider's delays are over: what it hides is shown, and what is on its way is there."""
    simulated = world.simulator.world
    simulated.clock.set_now(simulated.clock.now() + 1000)
    simulated.advance()


async def _reconcile(world: World) -> None:
    await world.enqueue(Reconcile())
    await world.work_until(lambda: _has_no_reconcile(world))


async def _has_no_reconcile(world: World) -> bool:
    return not await world.value("SELECT count(*) FROM job WHERE kind = 'RECONCILE'")


async def _own_faults(world: World, since: Any, cancelled: set[str]) -> list[str]:
    rows = await world.rows(f"{FAILURES} AND finished_at > $2", list[str](), since)
    failures = [
        Failure(f"op_{row['id'].hex}", row["kind"], row["error_code"], row["error_message"], row["seconds"])
        for row in rows
        if row["error_code"] not in EXCUSED
    ]
    max_wait = world.settings.provider_max_wait.total_seconds()
    return own_faults(failures, cancelled=cancelled, provider_max_wait=max_wait)


async def _clear(world: World, instance_id: UUID) -> None:
    """The next case begins with an empty account."""
    world.faults()
    row = await world.instance(instance_id)
    if row["status"] != InstanceStatus.DELETED:
        with contextlib.suppress(Refused):
            await world.delete(instance_id)
    await _settle(world)


def _words(case: Case) -> str:
    return f"{case['verb']} with {case['fault'] or 'no fault'}, then {case['interruption']}, dialect {case['dialect']}"
