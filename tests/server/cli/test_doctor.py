"""`pilotlight doctor`: what it says about the provider."""

import pytest
from pydantic import SecretStr

from server.cli import doctor
from server.config import Settings
from server.simulator.server import Simulator
from tests.server.provider.conftest import KEY, Connect, connect, real
from tests.support.world import World

__all__ = ["connect", "real"]


async def findings(settings: Settings, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Each check with its mark and its sentence."""
    capsys.readouterr()
    await doctor.examine(settings)
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line[2:3] in ("✓", "✗")]
    return {name: f"{mark} {text}" for mark, name, text in lines}


async def test_it_reads_regions_list_and_balance(
    world: World, connect: Connect, real: Simulator, database_url: str, capsys: pytest.CaptureFixture[str]
):
    settings = Settings(
        novita_api_base_url=real.url, novita_api_key=SecretStr(KEY), database_url=SecretStr(database_url)
    )

    seen = await findings(settings, capsys)
    assert seen["provider"] == f"✓ {real.url} answers with 6 regions, 0 instances, a balance of $100.00"
    assert seen["identity"] == f"✓ the database is bound at the first start, to the Novita account at {real.url}"

    real.world.put("account", "balance", {"available": 0})
    async with connect(world.simulator):
        pass
    seen = await findings(settings, capsys)
    assert seen["provider"] == "✗ the account's balance is $0.00: the provider will refuse creates and starts"
    world_id = world.simulator.world.id
    assert seen["identity"] == (
        f"✗ the database belongs to the simulated world {world_id}, but the settings lead to the Novita account at "
        f"{real.url}"
    )
