"""After a restored backup no machine is made twice or billed unseen, and old cursors are refused."""

from collections.abc import AsyncIterator

import pytest

from server.cli import restored
from server.enums import InstanceStatus
from server.errors import CursorExpired, StartupProblem
from server.events.replay import check_cursor, cursor_now
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.provider.reconcile import reconcile
from server.instances.provider.unlinked import Origin
from tests.support.accounting import machines_unaccounted
from tests.support.world import CREATE, World

S = InstanceStatus
TABLES = ("instance", "operation", "attempt", "idempotency_key", "job", "outbox", "cost_entry")
# Children first.
EMPTY = (
    *("idempotency_key", "attempt", "operation", "probe_result", "cost_entry", "instance"),
    *("job", "job_history", "outbox"),
)


class Backup:
    """A copy of the tables in the same database; the epoch of its event log is not copied, as after pg_restore."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def take(self) -> None:
        for table in TABLES:
            await self.world.execute(f"DROP TABLE IF EXISTS backup_{table}")
            await self.world.execute(f"CREATE UNLOGGED TABLE backup_{table} AS TABLE {table}")

    async def restore(self) -> None:
        """And run `pilotlight restored`."""
        for table in EMPTY:
            await self.world.execute(f"DELETE FROM {table}")
        for table in TABLES:
            override = "OVERRIDING SYSTEM VALUE" if table in ("job", "outbox", "cost_entry") else ""
            await self.world.execute(f"INSERT INTO {table} {override} TABLE backup_{table}")
            await self.world.execute(f"DROP TABLE backup_{table}")
        await restored.mark_restored(self.world.database)
        await restored.compare(self.world.settings, self.world.database, self.world.novita)


@pytest.fixture
async def backup(world: World) -> AsyncIterator[Backup]:
    await world.execute("INSERT INTO event_log (epoch, home, head) VALUES (1, 'here', 0) ON CONFLICT DO NOTHING")
    yield Backup(world)
    await world.execute("UPDATE event_log SET restored_at = NULL")


async def test_a_create_that_was_carried_out_after_the_backup_is_not_made_again(world: World, backup: Backup):
    accepted = await world.create("before")
    await backup.take()
    await world.work_until_status(accepted.instance.id, S.READY)
    (machine,) = world.machines()

    await backup.restore()
    assert (await world.instance(accepted.instance.id))["status"] == S.CREATING
    assert await machines_unaccounted(world) == []
    await world.work_until_status(accepted.instance.id, S.READY)

    assert (await world.instance(accepted.instance.id))["novita_id"] == machine.id
    assert (world.made(), world.calls(CREATE)) == (1, 1)
    assert await machines_unaccounted(world) == []


async def test_a_request_that_is_repeated_with_its_key_gets_the_machine_of_before(world: World, backup: Backup):
    await backup.take()
    first = await world.create("keyed", idempotency_key="k1")
    await world.work_until_status(first.instance.id, S.READY)
    (machine,) = world.machines()

    await backup.restore()
    again = await world.create("keyed", idempotency_key="k1")
    await world.work_until_status(again.instance.id, S.READY)

    assert again.instance.id != first.instance.id
    assert (await world.instance(again.instance.id))["novita_id"] == machine.id
    assert (world.made(), world.calls(CREATE)) == (1, 1)
    other = await world.create("another", idempotency_key="k2")
    await world.work_until_status(other.instance.id, S.READY)
    assert world.made() == 2
    assert await machines_unaccounted(world) == []


async def test_a_machine_whose_row_is_lost_is_said_shown_to_its_project_and_adoptable(
    world: World, backup: Backup, capsys: pytest.CaptureFixture[str]
):
    await backup.take()
    first = await world.create("lost")
    await world.work_until_status(first.instance.id, S.READY)
    (machine,) = world.machines()

    await backup.restore()

    said = f"machine {machine.id} ({machine.name}, running) has no instance: adopt or delete it"
    assert said in capsys.readouterr().out
    assert (await reconcile(world.database, world.novita)).unlinked == {Origin.LOST: 1}
    assert len(world.machines()) == 1
    assert await machines_unaccounted(world) == []
    adopted = await adopt_instance(world.database, world.reader, AdoptDraft(machine.id), by=world.caller)
    await world.work_until_status(adopted.id, S.READY)
    assert (adopted.novita_id, world.made()) == (machine.id, 1)


async def test_cursors_of_before_are_expired(world: World, backup: Backup):
    async with world.database.read() as session:
        before = await cursor_now(session)
    await backup.take()

    await backup.restore()

    async with world.database.read() as session:
        with pytest.raises(CursorExpired):
            await check_cursor(session, before)


async def test_it_refuses_while_workers_run(world: World, backup: Backup):
    await world.execute(
        "INSERT INTO job_worker (id, name, lease_until) VALUES (gen_random_uuid(), 'one', now() + interval '1 hour')"
    )
    with pytest.raises(StartupProblem, match="1 workers are running"):
        await restored.mark_restored(world.database)
    assert await world.value("SELECT restored_at FROM event_log") is None


async def test_without_a_restore_a_create_looks_for_nothing(world: World):
    accepted = await world.create("usual", idempotency_key="k1")
    await world.work_until_status(accepted.instance.id, S.READY)
    assert world.calls("GET /gpu/instances") == 0
