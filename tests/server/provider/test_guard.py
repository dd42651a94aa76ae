"""A database works with the provider that it was first used with, and with no other."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from server.enums import InstanceStatus
from server.errors import NovitaError, StartupProblem, WrongProvider
from server.provider.identity import FoundProvider
from server.runtime import Runtime
from server.simulator.faults import Fault, FaultKind
from server.simulator.server import Simulator
from tests.server.provider.conftest import KEY, Connect
from tests.support.api_server import serving
from tests.support.waiting import until
from tests.support.world import World, a_simulator


async def row(world: World) -> tuple[str, str, str | None]:
    return tuple(await world.one("SELECT kind, base_url, world_id FROM provider_identity"))


async def refusal(start: AbstractAsyncContextManager[Runtime], is_done: Callable[[], Any]) -> str:
    """Why the process did not start; it works until the given is so if it does."""

    async def run() -> None:
        async with start as runtime:
            runtime.work()
            await until(is_done)

    with pytest.raises(StartupProblem) as refused:
        await run()
    return str(refused.value)


async def ready(world: World, connect: Connect, simulator: Simulator, *, key: str | None = None) -> UUID:
    """An instance that runs at this provider."""
    async with connect(simulator, key=key) as runtime:
        accepted = await world.create("one")
        runtime.work()
        await until(lambda: reached(world, accepted.instance.id, InstanceStatus.RUNNING))
    return accepted.instance.id


async def reached(world: World, instance_id: UUID, status: InstanceStatus) -> bool:
    await world.hurry()
    seen = InstanceStatus((await world.instance(instance_id))["status"])
    return seen in (status, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY)


async def test_the_first_use_binds_the_database(world: World, connect: Connect, real: Simulator):
    async with connect(real, key=KEY) as runtime:
        assert not runtime.server_info.provider.is_simulator
    assert await row(world) == ("NOVITA", real.url, None)
    assert KEY not in str(await world.one("SELECT * FROM provider_identity"))


async def test_a_simulator_is_known_by_its_world_and_not_by_its_address(world: World, connect: Connect):
    async with connect(world.simulator) as runtime:
        assert runtime.server_info.provider.is_simulator
    assert await row(world) == ("SIMULATOR", world.simulator.url, world.simulator.world.id)


async def test_a_create_accepted_for_the_simulator_is_not_made_for_real(
    world: World, connect: Connect, real: Simulator
):
    async with connect(world.simulator):
        accepted = await world.create("one")

    message = await refusal(connect(real, key=KEY), real.world.made.total)

    confirmation = FoundProvider(real.url, SecretStr(KEY), None).confirmation()
    assert message == (
        f"This database belongs to the simulated world {world.simulator.world.id}, but the settings lead to the Novita "
        f"account at {real.url}. Nothing was done. Start with the former settings, or move the database on purpose "
        f"with `pilotlight provider rebind --confirm {confirmation}`."
    )
    assert real.world.made.total() == 0
    assert (await world.operation(accepted.operation.id))["status"] == "QUEUED"


async def test_a_start_without_the_key_does_not_fail_real_instances(world: World, connect: Connect, real: Simulator):
    instance_id = await ready(world, connect, real, key=KEY)
    before = await world.instance(instance_id)

    message = await refusal(connect(world.simulator), lambda: reached(world, instance_id, InstanceStatus.FAILED))

    assert message.startswith(
        f"This database belongs to the Novita account at {real.url}, but the settings lead to the simulated world "
    )
    assert dict(await world.instance(instance_id)) == dict(before)


async def test_another_simulated_world_is_another_provider(world: World, connect: Connect):
    async with connect(world.simulator):
        pass
    async with a_simulator() as other:
        message = await refusal(connect(other), lambda: True)
        assert f"belongs to the simulated world {world.simulator.world.id}, but" in message
    async with connect(world.simulator):
        pass


async def test_two_that_bind_at_once_agree_on_one(world: World, connect: Connect, real: Simulator):
    async def use(simulator: Simulator, key: str | None = None) -> bool:
        try:
            async with connect(simulator, key=key):
                return True
        except StartupProblem:
            return False

    outcomes = await asyncio.gather(use(real, KEY), use(world.simulator), use(real, KEY), use(world.simulator))

    assert outcomes in ([True, False, True, False], [False, True, False, True])
    assert await world.value("SELECT count(*) FROM provider_identity") == 1


async def test_a_new_key_is_accepted_if_it_sees_one_of_our_machines(world: World, connect: Connect, real: Simulator):
    await ready(world, connect, real, key=KEY)

    async with connect(real, key="sk_second"):
        pass

    # Both are known now, whatever becomes of the machine.
    await world.execute("UPDATE instance SET status = 'DELETED', deleted_at = now()")
    for key in (KEY, "sk_second"):
        async with connect(real, key=key):
            pass


async def test_a_new_key_that_sees_none_of_our_machines_is_refused(world: World, connect: Connect, real: Simulator):
    await ready(world, connect, real, key=KEY)
    real.world.instances.clear()

    message = await refusal(connect(real, key="sk_second"), lambda: True)

    assert "but NOVITA_API_KEY is a new key, with which none of its machines can be seen. Nothing was done." in message


async def test_an_outage_at_start_is_like_any_other_with_the_settings_of_before(
    world: World, connect: Connect, real: Simulator
):
    async with connect(real, key=KEY):
        pass
    real.world.faults.set([Fault(FaultKind.OUTAGE)])

    async with connect(real, key=KEY) as runtime:
        assert runtime.provider.problem is None
        assert not await runtime.provider.reach()
        real.world.faults.clear()
        assert len(await runtime.novita.clusters()) > 0
        assert await runtime.provider.reach()


async def test_with_new_settings_calls_wait_until_the_provider_has_said_who_it_is(
    world: World, connect: Connect, real: Simulator
):
    async with connect(world.simulator):
        pass
    real.world.faults.set([Fault(FaultKind.OUTAGE)])

    async with connect(real, key=KEY) as runtime:
        real.world.faults.clear()
        calls = real.world.calls.total()

        async def is_refused() -> bool:
            with pytest.raises(NovitaError) as refused:
                await runtime.novita.clusters()
            return isinstance(refused.value, WrongProvider) and refused.value.is_certain_refusal

        await until(is_refused)

        assert real.world.calls.total() == calls + 1  # the look; the call itself was not sent
        assert runtime.provider.problem is not None


async def test_a_simulator_that_is_replaced_while_the_process_runs_is_not_believed(world: World, connect: Connect):
    async with connect(world.simulator) as runtime:
        instance = await world.put(InstanceStatus.READY, novita_id="0123456789abcdef")
        port = int(world.simulator.url.rpartition(":")[2])
        await world.simulator.stop()
        async with a_simulator(port=port):
            with pytest.raises(WrongProvider, match=r"^The provider has changed while this process ran"):
                await runtime.novita.instance("0123456789abcdef")  # not ProviderNotFound: it is not gone
            assert runtime.provider.problem is not None
    assert (await world.instance(instance.id))["status"] == "READY"


async def test_readyz_does_not_say_ok_before_the_provider_was_reached(world: World, database_url: str):
    world.faults(Fault(FaultKind.OUTAGE))
    async with serving(database_url, world.simulator) as server:

        async def provider() -> str:
            async with server.http.get(f"http://{server.address}/readyz") as response:
                return (await response.json())["checks"]["provider"]

        assert "503" in await provider()
        world.faults()

        async def is_ok() -> bool:
            return await provider() == "ok"

        await until(is_ok)
