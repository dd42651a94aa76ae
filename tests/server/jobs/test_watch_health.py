"""READY instances are probed at their intervals, and are degraded while they do not respond."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest

from server.db.tables import Instance
from server.enums import InstanceStatus
from server.instances import transitions
from server.jobs.watch_health import INSTANCES_PER_JOB, JOBS_MAX
from server.observe import metrics
from server.queue.kinds import WatchHealth
from server.simulator import lifecycle
from tests.server.probes.servers import page, serving
from tests.support.machines import make_running
from tests.support.receiver import Receiver
from tests.support.world import World

S = InstanceStatus
PORTS = [{"port": 80, "type": "http"}]


@dataclass
class Application:
    """Responds with `status` and counts the requests."""

    address: str = ""
    status: int = 200
    requests: int = 0

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        await page(self.status, b"hello")(reader, writer)


@pytest.fixture
async def application() -> AsyncIterator[Application]:
    application = Application()
    async with serving(application.respond) as address:
        application.address = f"http://{address}"
        yield application


async def put(world: World, application: Application, **fields: Any) -> Instance:
    return await world.put(
        **{"ports": PORTS, "endpoints": _endpoints(application.address), "novita_id": "m1", **fields}
    )


def _endpoints(address: str) -> list[dict[str, Any]]:
    return [{**PORTS[0], "address": address}]


async def refresh(world: World) -> int:
    """Decide which instances are watched; returns how many."""
    await world.enqueue(WatchHealth())
    later = (
        "UPDATE job SET run_at = now() + interval '1 h', due_at = now() + interval '1 h' WHERE kind = 'PROBE_WATCHED'"
    )
    await world.execute(later)
    await world.work_once()
    return await world.value("SELECT count(*) FROM health_watch")


async def probe(world: World, times: int = 1) -> None:
    """As if every watched instance were due that many times."""
    for _ in range(times):
        await world.execute("UPDATE health_watch SET due_at = now()")
        await world.hurry()
        await world.work_once()


async def watch(world: World, times: int = 1) -> None:
    await refresh(world)
    await probe(world, times)


async def health_of(world: World, instance_id: UUID) -> tuple[str, str | None, bool, int]:
    row = await world.instance(instance_id)
    return row["status"], row["health"], row["degraded_since"] is not None, row["version"]


async def test_instance_is_degraded_after_consecutive_failures_and_healthy_after_successes(
    world: World, application: Application
):
    instance = await put(world, application)
    application.status = 503
    await watch(world, times=2)
    assert await health_of(world, instance.id) == (S.READY, None, False, 1)

    await probe(world)
    assert await health_of(world, instance.id) == (S.READY, "UNHEALTHY", True, 2)

    application.status = 200
    await probe(world)
    assert await health_of(world, instance.id) == (S.READY, "UNHEALTHY", True, 2)

    await probe(world)
    assert await health_of(world, instance.id) == (S.READY, "HEALTHY", False, 3)
    down, up = await world.events(instance.id)
    assert (down.type, down.data["health"]["status"]) == ("health.changed", "UNHEALTHY")
    assert down.data["health"]["endpoints"][0]["http_status"] == 503
    assert down.data["instance"]["degraded_since"] is not None
    assert (up.type, up.data["health"]["status"]) == ("health.changed", "HEALTHY")
    assert up.data["instance"]["degraded_since"] is None


async def test_instance_that_failed_its_health_check_is_ready_once_it_responds(world: World, application: Application):
    failed = {"failure_code": "HEALTH_CHECK_FAILED", "failure_message": "no answer", "novita_status": "running"}
    instance = await put(world, application, status=S.FAILED, **failed)
    application.status = 503
    await watch(world, times=4)
    assert await health_of(world, instance.id) == (S.FAILED, None, False, 1)
    assert await world.events(instance.id) == []

    application.status = 200
    await probe(world, times=2)

    row = await world.instance(instance.id)
    assert (row["status"], row["health"], row["status_reason"], row["failure_code"]) == (
        S.READY,
        "HEALTHY",
        "CAME_UP_LATE",
        None,
    )
    assert row["ready_at"] is not None
    assert await world.event_types(instance.id) == ["instance.ready"]


async def test_instance_that_failed_otherwise_or_whose_machine_is_down_is_not_watched(
    world: World, application: Application
):
    await put(world, application, status=S.FAILED, failure_code="IMAGE_PULL_FAILED", novita_status="running")
    unhealthy = {"failure_code": "HEALTH_CHECK_FAILED", "novita_id": "m2"}
    await put(world, application, status=S.FAILED, novita_status="exited", **unhealthy)

    assert await refresh(world) == 0


async def test_container_that_ended_is_noticed_after_the_first_failed_probe(world: World, application: Application):
    (machine,) = await make_running(world, 1)
    instance = await put(world, application, novita_id=machine, novita_status="running")
    await watch(world)
    lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(machine), code=1)
    application.status = 502

    await probe(world)
    await world.work_until_status(instance.id, S.EXITED)

    row = await world.instance(instance.id)
    assert (row["status_reason"], row["exit_code"]) == ("CONTAINER_EXITED", 1)


async def test_a_network_of_our_own_that_fails_degrades_no_instance(world: World, application: Application):
    working, down = (orjson.dumps(_endpoints(each)).decode() for each in (application.address, "http://127.0.0.1:9"))
    rows = [await put(world, application, novita_id=f"m{number}") for number in range(4)]
    await watch(world)
    for row in rows[1:]:
        await world.execute("UPDATE instance SET endpoints = $2 WHERE id = $1", row.id, down)
    before = metrics.MASS_DEGRADATIONS.of()

    await probe(world, times=4)

    assert [(await world.instance(row.id))["degraded_since"] for row in rows] == [None] * 4
    assert metrics.MASS_DEGRADATIONS.of() > before

    await world.execute("UPDATE instance SET endpoints = $2 WHERE id = $1", rows[1].id, working)
    await world.execute("UPDATE instance SET endpoints = $2 WHERE id = $1", rows[2].id, working)
    await probe(world, times=4)

    degraded = [(await world.instance(row.id))["degraded_since"] is not None for row in rows]
    assert degraded == [False, False, False, True]


async def test_a_success_between_failures_begins_the_count_again(world: World, application: Application):
    instance = await put(world, application)
    await refresh(world)

    for status in (503, 503, 200, 503, 503):
        application.status = status
        await probe(world)

    assert await health_of(world, instance.id) == (S.READY, None, False, 1)


async def test_without_a_change_there_is_no_event_and_no_version(world: World, application: Application):
    instance = await put(world, application)

    await watch(world, times=5)

    assert application.requests == 5
    assert await health_of(world, instance.id) == (S.READY, None, False, 1)
    assert await world.events(instance.id) == []
    result = await world.one("SELECT is_healthy, http_status, checked_at > now() - interval '1 min' FROM probe_result")
    assert tuple(result) == (True, 200, True)


async def test_thresholds_of_the_instance_replace_the_settings(world: World, application: Application):
    instance = await put(world, application, health_check={"failure_threshold": 1, "success_threshold": 1})
    application.status = 500

    await watch(world)
    assert (await world.instance(instance.id))["degraded_since"] is not None

    application.status = 200
    await probe(world)
    assert (await world.instance(instance.id))["degraded_since"] is None


async def test_thresholds_of_the_settings_apply_without_own_ones(world: World, application: Application):
    await world.configure(health_check_failure_threshold=1, health_check_success_threshold=1)
    instance = await put(world, application)
    application.status = 500

    await watch(world)
    assert (await world.instance(instance.id))["degraded_since"] is not None

    application.status = 200
    await probe(world)
    assert (await world.instance(instance.id))["degraded_since"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"health_check": {"interval": 0}},
        {"ports": [], "endpoints": []},
        {"ports": [{"port": 22, "type": "tcp"}], "endpoints": []},
        {"novita_id": None},
        {"status": S.EXITED},
        {"status": S.FAILED},
    ],
    ids=lambda fields: "-".join(fields),
)
async def test_instance_that_has_nothing_to_watch_is_not_watched(
    world: World, application: Application, fields: dict[str, Any]
):
    await put(world, application, **fields)

    assert await refresh(world) == 0
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_tcp_port_is_watched_if_it_is_the_target(world: World, application: Application):
    address = application.address.removeprefix("http://")
    endpoints = [{"port": 22, "type": "tcp", "address": address}]
    await put(world, application, ports=[], endpoints=endpoints, health_check={"target_port": 22})

    await watch(world)

    assert tuple(await world.one("SELECT port, type, is_healthy FROM probe_result")) == (22, "tcp", True)


async def test_interval_of_zero_in_the_settings_leaves_instances_with_their_own_watched(
    world: World, application: Application
):
    await put(world, application)
    assert await refresh(world) == 1
    await world.configure(health_check_interval=timedelta(0))
    assert await refresh(world) == 0

    await put(world, application, novita_id="m2", health_check={"interval": 30})

    assert await refresh(world) == 1


async def test_interval_decides_when_the_next_probe_is_due(world: World, application: Application):
    await put(world, application)
    await put(world, application, novita_id="m2", health_check={"interval": 600})

    await watch(world)

    query = "SELECT extract(epoch FROM due_at - now())::float8 FROM health_watch ORDER BY due_at"
    soon, late = [row[0] for row in await world.rows(query)]
    assert 50 < soon < 64
    assert 560 < late < 631


async def test_shorter_interval_applies_at_once(world: World, application: Application):
    await put(world, application, health_check={"interval": 3600})
    await refresh(world)
    await world.execute("UPDATE health_watch SET due_at = now() + interval '59 min'")
    await world.execute("""UPDATE instance SET health_check = '{"interval": 10}'""")

    await refresh(world)

    assert await world.value("SELECT due_at < now() + interval '11 s' FROM health_watch")


async def test_first_probes_are_spread_over_the_interval(world: World, application: Application):
    for number in range(40):
        await put(world, application, novita_id=f"m{number}", name=f"n{number}")

    await refresh(world)

    spread = "SELECT extract(epoch FROM max(due_at) - min(due_at))::float8 FROM health_watch"
    assert 20 < await world.value(spread) < 60


async def test_watch_ends_when_the_instance_leaves_ready_and_begins_anew(world: World, application: Application):
    instance = await put(world, application)
    application.status = 503
    await watch(world, times=3)
    assert await health_of(world, instance.id) == (S.READY, "UNHEALTHY", True, 2)

    async with world.database.write() as session:
        await transitions.transition(session, instance.id, S.RESTARTING, cause=transitions.Cause())
    await probe(world)
    assert application.requests == 3
    assert (await world.instance(instance.id))["degraded_since"] is None
    assert await world.value("SELECT count(*) FROM probe_result") == 0

    for status in (S.RUNNING, S.READY):
        async with world.database.write() as session:
            await transitions.transition(session, instance.id, status, cause=transitions.Cause())
    await watch(world, times=2)
    assert tuple(await world.one("SELECT failures, successes FROM health_watch")) == (2, 0)
    assert (await world.instance(instance.id))["degraded_since"] is None


async def test_result_that_comes_after_the_instance_left_ready_is_dropped(world: World):
    entered, leave = asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        entered.set()
        await leave.wait()
        await page(503, b"")(reader, writer)

    async with serving(hold) as address:
        application = Application(f"http://{address}")
        instance = await put(world, application, health_check={"failure_threshold": 1})
        await refresh(world)
        probing = asyncio.create_task(probe(world))
        await entered.wait()
        async with world.database.write() as session:
            await transitions.transition(session, instance.id, S.STOPPING, cause=transitions.Cause())
        leave.set()
        await probing

    assert await health_of(world, instance.id) == (S.STOPPING, None, False, 2)
    assert await world.value("SELECT count(*) FROM probe_result") == 0
    assert await world.event_types(instance.id) == ["instance.stopping"]


async def test_instances_of_a_killed_worker_are_probed_after_its_claim(world: World, application: Application):
    await put(world, application)
    await refresh(world)
    await world.execute("UPDATE health_watch SET due_at = now() + interval '60 s'")  # as the claim of a killed worker
    await world.execute("UPDATE job SET run_at = now(), due_at = now()")
    await world.work_once()
    assert application.requests == 0

    await probe(world)

    assert application.requests == 1


async def test_job_ends_when_nothing_is_watched_and_starts_again(world: World, application: Application):
    instance = await put(world, application)
    await refresh(world)
    await world.execute("DELETE FROM health_watch")
    await world.hurry()
    await world.work_once()
    assert await world.value("SELECT count(*) FROM job") == 0

    await watch(world)

    assert application.requests == 1
    assert await world.value("SELECT count(*) FROM probe_result WHERE instance_id = $1", instance.id) == 1


async def test_many_instances_get_several_jobs_and_each_is_probed_once(world: World, application: Application):
    many = INSTANCES_PER_JOB * JOBS_MAX + 100
    await world.configure(health_watch_concurrency=16)
    await put(world, application)
    await world.execute(
        """INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,
               novita_id, ports, endpoints, running_at, ready_at)
           SELECT gen_random_uuid(), project_id, 'n' || n, status, product_name, 1, 60, billing, image, 'n' || n, ports,
                  endpoints, now(), now()
           FROM instance, generate_series(2, $1) AS n""",
        many,
    )
    assert await refresh(world) == many
    assert await world.value("SELECT count(*) FROM job WHERE kind = 'PROBE_WATCHED'") == JOBS_MAX
    await world.execute("DELETE FROM health_watch WHERE instance_id NOT IN (SELECT id FROM instance LIMIT 40)")

    await world.execute("UPDATE health_watch SET due_at = now()")
    await world.work_until(lambda: all_probed(world))

    assert application.requests == 40


async def all_probed(world: World) -> bool:
    return await world.value("SELECT count(*) FROM probe_result") == 40


async def test_endpoint_that_hangs_is_unhealthy_after_the_timeout(world: World):
    async def hang(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(hang) as address:
        await put(world, Application(f"http://{address}"), health_check={"timeout": 0.05})
        await watch(world)

    assert tuple(await world.one("SELECT is_healthy, error_kind FROM probe_result")) == (False, "TIMEOUT")


async def test_change_of_health_is_sent_to_the_webhook(world: World, application: Application, receiver: Receiver):
    await put(world, application, webhook_url=receiver.url, health_check={"failure_threshold": 1})
    application.status = 503

    await watch(world)
    await world.work_until(lambda: until_received(receiver))

    (message,) = [each.message["data"] for each in receiver.got]
    assert (message["type"], message["health"]["status"]) == ("health.changed", "UNHEALTHY")
    assert message["instance"]["degradedSince"] is not None
    assert message["instance"]["status"] == "READY"


async def until_received(receiver: Receiver) -> bool:
    return bool(receiver.got)


async def test_due_instances_are_found_by_the_index(world: World, application: Application):
    await put(world, application)
    await world.execute(
        """INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image,
               running_at, ready_at)
           SELECT gen_random_uuid(), project_id, 'n' || n, status, product_name, 1, 60, billing, image, now(), now()
           FROM instance, generate_series(2, 3000) AS n"""
    )
    await world.execute("INSERT INTO health_watch SELECT id, now(), now() + interval '1 h' FROM instance")
    await world.execute("ANALYZE health_watch")

    plan = await world.rows("EXPLAIN SELECT FROM health_watch WHERE due_at <= now() ORDER BY due_at LIMIT 250")

    assert "health_watch_by_due_at" in "\n".join(row[0] for row in plan)
