"""While the provider can't be read, nothing is recovered, however long that takes; afterwards what needs it, once."""

from datetime import timedelta
from typing import Any

from server.enums import Billing
from server.instances.drafts import Port
from server.instances.recovery.spec import Recovery
from server.probes.plan import HealthCheckDraft
from server.queue.kinds import CheckHealth, Reconcile
from server.simulator import lifecycle
from tests.server.recovery.test_recovery import RECOVERIES, S, reclaim, see
from tests.server.recovery.test_replacement import LONG
from tests.server.recovery.test_steps import lose
from tests.support.aging import age_all
from tests.support.world import World

ALL = Recovery(allow_data_loss=True)
BEFORE = Recovery(allow_data_loss=True, replace_before_reclaim=True)
STEP, STEPS = timedelta(minutes=3), 10


async def test_provider_that_can_not_be_read_for_half_an_hour_recovers_nothing(world: World):
    names = {"kept": ALL, "lost": ALL, "reclaimed": ALL, "noticed": BEFORE}
    machines: dict[str, str] = {}
    for name, recovery in names.items():
        accepted = await world.create(name, billing=Billing.SPOT, recovery=recovery)
        await world.work_until_status(accepted.instance.id, S.READY)
        machines[name] = (await world.instance(accepted.instance.id))["novita_id"]
    simulated = world.simulator.world
    lifecycle.reclaim(simulated, simulated.instances[machines["noticed"]], notice=LONG)
    await see(world)
    world.outage()
    lose(world, machines["lost"])
    reclaim(world, machines["reclaimed"])

    for _ in range(STEPS):
        await age_all(world, STEP)
        await world.enqueue(Reconcile())
        await world.hurry()
        await world.work_once()

    assert await world.value(RECOVERIES) == 0
    assert [row["status"] for row in await world.rows("SELECT status FROM instance")] == [S.READY] * 4
    assert (world.made(), await world.value("SELECT count(*) FROM machine WHERE ended_at IS NOT NULL")) == (4, 0)

    world.faults()

    async def are_back() -> bool:
        await world.enqueue(Reconcile())
        recovered = (
            "SELECT count(DISTINCT instance_id) FROM operation WHERE reason = 'RECOVERY' AND status = 'SUCCEEDED'"
        )
        ready = "SELECT count(*) FROM instance WHERE status = 'READY'"
        return (await world.value(recovered), await world.value(ready)) == (3, 4)

    await world.work_until(are_back)
    left = {row["name"]: row["novita_id"] for row in await world.rows("SELECT name, novita_id FROM instance")}
    assert [left[name] == machine for name, machine in machines.items()] == [True, False, True, False]


async def test_machine_whose_endpoints_fail_is_not_recovered(world: World):
    check = HealthCheckDraft(delay=0.1, retries=0)
    wish: dict[str, Any] = {
        "billing": Billing.SPOT,
        "recovery": BEFORE,
        "ports": (Port(8080, "http"),),
        "health_check": check,
    }
    accepted = await world.create("one", **wish)
    instance_id = accepted.instance.id
    await world.work_until_status(instance_id, S.READY)
    machine = (await world.instance(instance_id))["novita_id"]
    world.simulator.world.endpoint_modes[machine, 8080] = "badGateway"

    await world.enqueue(CheckHealth(instance_id, asked_at=9e9))

    async def is_unhealthy() -> bool:
        return await world.value("SELECT health FROM instance") == "UNHEALTHY"

    await world.work_until(is_unhealthy)
    for _ in range(3):
        await world.enqueue(Reconcile())
        await world.hurry()
        await world.work_once()

    assert (await world.value(RECOVERIES), world.made()) == (0, 1)
    assert await world.value("SELECT count(*) FROM job WHERE kind = 'RECOVER_INSTANCE'") == 0
