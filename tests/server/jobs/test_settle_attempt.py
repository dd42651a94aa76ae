"""A create without a clear response is settled whatever became of its operation: no machine is billed unseen."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.enums import InstanceStatus
from server.errors import Invalid, NotFound
from server.http.metrics import DOUBT, MACHINES
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.commands.create import Accepted
from server.instances.provider.reconcile import reconcile
from server.instances.provider.unlinked import Origin
from server.instances.queries.fleet import FleetSource, fleet
from server.novita.client import NovitaClient
from server.novita.models import RemoteInstance
from server.queue.control import cancel_job
from server.simulator.faults import Fault, FaultKind
from tests.support.accounting import machines_unaccounted
from tests.support.machines import make_machine, status_of, stop_outside
from tests.support.waiting import until
from tests.support.world import CREATE, LIST, World

S = InstanceStatus


class Broken(NovitaClient):
    """Our own code fails whenever it reads the list."""

    async def all_instances(self, **options: Any) -> list[RemoteInstance]:
        raise RuntimeError("a fault of our own")


async def _asked(world: World, *, is_made: bool = True) -> Accepted:
    """A create whose response was lost; its machine is running, if it was made."""
    accepted = await world.create("doubtful")
    kind = FaultKind.LOST_ANSWER if is_made else FaultKind.ERROR
    world.faults(
        Fault(kind, (CREATE,), times=1), Fault(FaultKind.ERROR, (LIST,), status=503)
    )  # the second: not found before the test goes on
    await world.work_once()
    world.faults()
    await until(lambda: all(status_of(world, each.id) == "running" for each in world.machines()))
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]
    return accepted


async def _outage(world: World, accepted: Accepted) -> None:
    """Longer than PROVIDER_MAX_WAIT."""
    await world.execute("UPDATE operation SET created_at = created_at - interval '1 day'")
    world.outage()
    await world.work_until_over(accepted.operation.id)
    world.faults()


async def _internal_error(world: World, accepted: Accepted) -> None:
    world.novita.__class__ = Broken
    await world.work_until_over(accepted.operation.id)
    world.novita.__class__ = NovitaClient


async def _cancelled_job(world: World, accepted: Accepted) -> None:
    """As an older process may still do: `cancelJob` refuses it."""
    async with world.database.write() as session:
        assert await cancel_job(session, await world.value("SELECT id FROM job"))
    await world.work_until_over(accepted.operation.id)


ENDS = {"outage": _outage, "internal error": _internal_error, "cancelled job": _cancelled_job}
CODES = {"outage": "NETWORK_ERROR", "internal error": "INTERNAL_ERROR", "cancelled job": "CANCELLED"}


async def _reasons(world: World, instance_id: UUID) -> tuple[str, str | None, str | None]:
    row = await world.instance(instance_id)
    return row["status"], row["status_reason"], row["failure_code"]


@pytest.mark.parametrize("end", ENDS)
async def test_a_machine_whose_create_ended_is_visible_and_then_adopted_by_its_row(world: World, end: str):
    accepted = await _asked(world)
    await ENDS[end](world, accepted)
    assert await _reasons(world, accepted.instance.id) == (S.FAILED, "MACHINE_MAY_EXIST", CODES[end])
    assert await machines_unaccounted(world) == []

    await world.work_until_status(accepted.instance.id, S.READY)

    (machine,) = world.machines()
    assert (await world.instance(accepted.instance.id))["novita_id"] == machine.id
    assert (world.made(), world.calls(CREATE)) == (1, 1)
    assert await world.attempts(accepted.operation.id) == [("AS-SGP-02", "spot", "CREATED", "NETWORK_ERROR")]
    types = await world.event_types(accepted.instance.id)
    assert types[types.index("instance.failed") :] == [
        "instance.failed",
        "attempt.finished",
        "instance.changed",
        "operation.started",
        "instance.starting",
        "operation.changed",
        "operation.changed",
        "instance.running",
        "instance.ready",
        "operation.finished",
    ]
    assert await machines_unaccounted(world) == []


@pytest.mark.parametrize("end", ENDS)
async def test_a_create_that_made_nothing_ends_absent_with_an_event(world: World, end: str):
    accepted = await _asked(world, is_made=False)
    await ENDS[end](world, accepted)
    await world.age_attempts()

    async def is_settled() -> bool:
        return await world.value("SELECT status FROM attempt") == "ABSENT"

    await world.work_until(is_settled)

    assert await _reasons(world, accepted.instance.id) == (S.FAILED, None, CODES[end])
    assert (await world.event_types(accepted.instance.id))[-2:] == ["attempt.finished", "instance.changed"]
    assert await world.value("SELECT count(*) FROM job") == 0
    assert (world.made(), world.calls(CREATE)) == (0, 1)


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refused_look_is_no_answer_and_the_create_goes_on(world: World, status: int):
    accepted = await _asked(world)
    world.faults(Fault(FaultKind.ERROR, (LIST,), times=2, status=status, reason="REQUEST", message="no"))

    await world.work_until_status(accepted.instance.id, S.READY)

    assert (await world.operation(accepted.operation.id))["status"] == "SUCCEEDED"
    assert (world.made(), world.calls(CREATE)) == (1, 1)


async def test_the_instance_says_that_a_machine_may_exist_while_it_is_searched_for(world: World):
    accepted = await _asked(world, is_made=False)
    await world.hurry()
    await world.work_once()
    assert await _reasons(world, accepted.instance.id) == (S.CREATING, "MACHINE_MAY_EXIST", None)

    await world.age_attempts()
    await world.work_until_status(accepted.instance.id, S.READY)

    assert (await world.instance(accepted.instance.id))["status_reason"] is None


async def test_the_machine_of_a_deleted_instance_is_removed_with_an_event(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    await world.execute("UPDATE instance SET status = 'DELETED', deleted_at = now(), failure_code = NULL")

    async def is_settled() -> bool:
        return await world.value("SELECT status FROM attempt") == "CREATED"

    await world.work_until(is_settled)

    await until(lambda: world.machines() == [])
    assert "instance.orphan_found" in await world.event_types(accepted.instance.id)
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_a_machine_that_was_stopped_meanwhile_is_adopted_as_exited(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    (machine,) = world.machines()
    await stop_outside(world, machine.id)

    await world.work_until_status(accepted.instance.id, S.EXITED)

    assert await _reasons(world, accepted.instance.id) == (S.EXITED, "MACHINE_FOUND", None)


async def test_reconcile_settles_an_attempt_whose_job_was_lost(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    await world.execute("DELETE FROM job")

    report = await reconcile(world.database, world.novita)

    assert (report.in_doubt, report.unlinked) == (1, {Origin.IN_DOUBT: 1})
    await world.work_until_status(accepted.instance.id, S.READY)
    assert world.made() == 1


async def test_deleting_the_instance_removes_the_machine_that_was_not_found_yet(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)

    await world.work_until_over(await world.delete(accepted.instance.id))

    assert (await world.instance(accepted.instance.id))["status"] == S.DELETED
    await until(lambda: world.machines() == [])
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_fleet_shows_the_machine_with_its_instance_and_only_to_its_project(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    (machine,) = world.machines()
    other = await world.new_caller("other")

    own = await fleet(world.database, world.reader, by=world.caller, include_novita_only=False)
    (item,) = own.items
    assert item.snapshot is not None
    assert item.instance is not None
    assert (item.source, item.instance.id, item.snapshot.id) == (FleetSource.MERGED, accepted.instance.id, machine.id)
    theirs = await fleet(world.database, world.reader, by=other, include_novita_only=True)
    assert theirs.items == []


async def test_adopting_the_machine_gives_it_the_row_that_it_was_created_for(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    (machine,) = world.machines()
    other = await world.new_caller("other")

    with pytest.raises(NotFound):
        await adopt_instance(world.database, world.reader, AdoptDraft(machine.id), by=other)
    with pytest.raises(Invalid) as refused:
        await adopt_instance(world.database, world.reader, AdoptDraft(machine.id, "another"), by=world.caller)
    assert refused.value.code == "MACHINE_HAS_INSTANCE"
    adopted = await adopt_instance(world.database, world.reader, AdoptDraft(machine.id), by=world.caller)

    assert (adopted.id, adopted.novita_id, adopted.status) == (accepted.instance.id, machine.id, S.STARTING)
    await world.work_until_status(adopted.id, S.READY)
    assert await world.value("SELECT count(*) FROM instance") == 1
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_settling_waits_for_a_provider_that_stays_away(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    world.outage()
    for _ in range(6):
        await world.hurry()
        await world.work_once()

    job = await world.one("SELECT kind, status, attempts, run_at > now() AS is_later FROM job")
    assert tuple(job) == ("SETTLE_ATTEMPT", "WAITING", 0, True)
    world.faults()
    await world.work_until_status(accepted.instance.id, S.READY)


async def test_metrics_count_attempts_in_doubt_and_machines_without_an_instance(world: World):
    accepted = await _asked(world)
    await _outage(world, accepted)
    await make_machine(world)
    await world.execute("UPDATE attempt SET created_at = now() - interval '100 seconds'")

    await reconcile(world.database, world.novita)

    async with world.database.read() as session:
        doubt = (await session.execute(DOUBT)).one()
        machines = {row.origin: row.machines for row in await session.execute(MACHINES)}
    assert (doubt.many, int(doubt.oldest) // 10) == (1, 10)
    assert machines == {"IN_DOUBT": 1, "SECOND": 0, "ORPHAN": 0, "LOST": 0, "UNMANAGED": 1}
    await world.work_until_status(accepted.instance.id, S.READY)
    await reconcile(world.database, world.novita)
    async with world.database.read() as session:
        assert tuple((await session.execute(DOUBT)).one()) == (0, 0.0)
    assert await world.value("SELECT machines FROM unlinked_count WHERE origin = 'IN_DOUBT'") == 0
