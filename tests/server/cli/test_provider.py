"""`pilotlight provider`: which provider the database belongs to, and moving it on purpose."""

import pytest
from pydantic import SecretStr

from server.cli.provider import Move, rebind, show
from server.config import Settings
from server.enums import InstanceStatus
from server.errors import StartupProblem
from server.provider.identity import FoundProvider
from server.simulator.server import Simulator
from tests.server.provider.conftest import KEY, Connect, connect, real
from tests.support.waiting import until
from tests.support.world import World

__all__ = ["connect", "real"]


def settings_for(simulator: Simulator, key: str = KEY) -> Settings:
    return Settings(novita_api_base_url=simulator.url, novita_api_key=SecretStr(key))


def word_for(simulator: Simulator, key: str = KEY) -> str:
    return FoundProvider(simulator.url, SecretStr(key), None).confirmation()


async def refusal(settings: Settings, url: str, move: Move) -> str:
    with pytest.raises(StartupProblem) as refused:
        await rebind(settings, url, move)
    return str(refused.value)


async def test_show_names_the_row_and_what_the_settings_lead_to(
    world: World, connect: Connect, real: Simulator, database_url: str, capsys: pytest.CaptureFixture[str]
):
    settings = settings_for(real)
    await show(settings, database_url)
    assert capsys.readouterr().out.splitlines() == [
        "the database belongs to no provider yet; the next start binds it",
        f"the settings lead to the Novita account at {real.url}",
    ]
    async with connect(world.simulator):
        pass
    capsys.readouterr()  # the log

    await show(settings_for(real, "sk_wrong"), database_url)

    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"the database belongs to the simulated world {world.simulator.world.id}, since 20")
    assert second == f"{real.url}: invalid API key (HTTP 401) (PROVIDER_AUTH_FAILED)"


async def test_an_empty_database_moves_with_the_right_word_only(
    world: World, connect: Connect, real: Simulator, database_url: str, capsys: pytest.CaptureFixture[str]
):
    async with connect(world.simulator):
        pass
    settings = settings_for(real)
    capsys.readouterr()  # the log

    for wrong in (None, "yes"):
        assert await refusal(settings, database_url, Move(wrong)) == (
            f"the settings lead to the Novita account at {real.url}; confirm that with --confirm {word_for(real)}"
        )
    await rebind(settings, database_url, Move(word_for(real)))

    assert capsys.readouterr().out == f"the database belongs to the Novita account at {real.url} now\n"
    async with connect(real, key=KEY) as runtime:
        assert not runtime.provider.is_simulator


async def test_instances_stay_only_with_the_same_account(
    world: World, connect: Connect, real: Simulator, database_url: str
):
    async with connect(real, key=KEY):
        kept = await world.put(InstanceStatus.READY, novita_id="0123456789abcdef")
    settings, word = settings_for(real, "sk_second"), word_for(real, "sk_second")

    assert await refusal(settings, database_url, Move(word)) == (
        f"1 instances and 0 open operations belong to the Novita account at {real.url}; add --same-account if the new "
        "key is of that account, or --leave-machines to give them up: their machines stay there, and are billed until "
        "they are deleted there"
    )
    await rebind(settings, database_url, Move(word, is_same_account=True))

    assert (await world.instance(kept.id))["status"] == "READY"
    for key in (KEY, "sk_second"):
        async with connect(real, key=key):
            pass


async def test_what_is_left_behind_fails_and_says_where_its_machine_is(
    world: World, connect: Connect, real: Simulator, database_url: str
):
    async with connect(world.simulator):
        accepted = await world.create("pending")
        failed = await world.put(InstanceStatus.FAILED, novita_id="0123456789abcdef")
    settings, word = settings_for(real), word_for(real)
    same = await refusal(settings, database_url, Move(word, is_same_account=True))
    assert same.endswith("can't be the same account")

    await rebind(settings, database_url, Move(word, leaves_machines=True))

    message = (
        f"Its machine was left at the simulated world {world.simulator.world.id}; if it runs there, delete it there."
    )
    for instance_id in (accepted.instance.id, failed.id):
        row = await world.instance(instance_id)
        assert (row["status"], row["failure_code"]) == ("FAILED", "LEFT_AT_FORMER_PROVIDER")
        assert row["failure_message"] == message
    operation = await world.operation(accepted.operation.id)
    assert (operation["status"], operation["error_code"]) == ("FAILED", "LEFT_AT_FORMER_PROVIDER")
    # The job of the create is still there, and must not make the machine at the new provider.
    async with connect(real, key=KEY) as runtime:
        await world.work_once(world.worker_with(runtime.novita))
    assert real.world.made.total() == 0


async def test_it_does_not_move_under_running_workers(
    world: World, connect: Connect, real: Simulator, database_url: str
):
    async with connect(world.simulator) as runtime:
        runtime.work()
        await until(lambda: runtime.active_workers == 2)

        message = await refusal(settings_for(real), database_url, Move(word_for(real)))

    assert message == "2 workers are running; stop all processes of Pilotlight first"
