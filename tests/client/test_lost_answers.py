"""The client while answers get lost, connections are cut and the server is away."""

import asyncio
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pilotlight_client import AsyncPilotlight, Unreachable
from pilotlight_client.models import InstanceEvent

from tests.support.fault_proxy import FaultProxy
from tests.support.processes import Up, free_port, made
from tests.support.waiting import until

PRODUCT = "RTX 4090 24GB"


def through(proxy: FaultProxy, running: Up, **options: float) -> AsyncPilotlight:
    return AsyncPilotlight(f"http://127.0.0.1:{proxy.port}/graphql", running.token, **options)


def port_of(running: Up) -> int:
    port = urlsplit(running.graphql_url).port
    assert port is not None
    return port


async def test_a_create_whose_answer_is_lost_is_sent_again_with_its_key(running: Up, client: AsyncPilotlight):
    before = await made(running.ready["simulatorUrl"])
    name = f"lost-{uuid4().hex[:12]}"
    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as cut:
        proxy.break_after(bytes_down=1)  # the first answer
        accepted = await cut.create(name=name, product=PRODUCT, image="nginx")

    assert accepted.replayed
    await client.wait(accepted.operation.id, timeout=60)
    assert await made(running.ready["simulatorUrl"]) == before + 1
    await client.delete(name)


async def test_an_extension_by_a_time_is_not_repeated_after_a_lost_answer(running: Up, client: AsyncPilotlight):
    accepted = await client.create(
        name=f"extend-{uuid4().hex[:12]}", product=PRODUCT, image="nginx", lifetime={"max_duration": 3600}
    )
    await client.wait(accepted, timeout=60)
    before = await client.get(accepted.instance.id)
    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as cut:
        proxy.break_after(bytes_down=1)
        with pytest.raises(Unreachable):
            await cut.extend(accepted.instance.id, by=600)

    after = await client.get(accepted.instance.id)
    assert before.lifetime is not None
    assert before.lifetime.next is not None
    assert after.lifetime is not None
    assert after.lifetime.next is not None
    assert (after.lifetime.next.at - before.lifetime.next.at).total_seconds() == 600
    await client.delete(accepted.instance.id)


async def test_events_resume_by_themselves_and_come_once(running: Up, client: AsyncPilotlight):
    names = [f"event-{uuid4().hex[:12]}" for _ in range(6)]
    seen: list[InstanceEvent] = []

    async def watch(watcher: AsyncPilotlight) -> None:
        async for event in watcher.events():
            seen.append(event)  # noqa: PERF401  one by one: the test looks at the list meanwhile

    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as watcher:
        watching = asyncio.create_task(watch(watcher))
        await until(lambda: proxy.connections > 0)
        first = await client.create(name=names[0], product=PRODUCT, image="nginx")
        await until(lambda: bool(seen))
        for name in names[1:]:
            proxy.reset()  # every connection is cut; new ones get through
            await client.create(name=name, product=PRODUCT, image="nginx")
        gone = [await client.delete(name) for name in names]
        for each in gone:
            await client.wait(each, timeout=60)

        ours = {each.instance.id for each in gone}

        def ended() -> set[str]:
            return {event.instance_id for event in seen if event.status == "DELETED"}

        await until(lambda: ended() >= ours)
        watching.cancel()
    assert first.instance.id in ours
    cursors = [event.cursor for event in seen]
    assert len(set(cursors)) == len(cursors)
    for id in ours:
        versions = [e.instance_snapshot.version for e in seen if e.instance_id == id and e.instance_snapshot]
        assert versions == sorted(versions)
    log = [event async for event in _until_last(client, seen[0], seen[-1])]
    assert [event.id for event in seen[1:]] == [event.id for event in log]


async def _until_last(client: AsyncPilotlight, first: InstanceEvent, last: InstanceEvent):
    async for event in client.events(after=first.cursor):
        yield event
        if event.id == last.id:
            return


async def test_a_server_that_is_not_there_is_said_after_the_retries():
    async with AsyncPilotlight(f"http://127.0.0.1:{free_port()}", "pl_any", retry_for=0.2) as client:
        with pytest.raises(Unreachable):
            await client.get("web")
        with pytest.raises(Unreachable):
            await anext(client.watch("inst_" + "0" * 32))
