"""`pilotlight doctor --live` finds out how the provider's lists behave, without changing anything."""

import orjson
import pytest
from pydantic import SecretStr

from server.cli.doctor import settle_questions
from server.config import Settings
from server.novita.models.request import CreateInstance, Port
from server.provider.questions import ask_all
from server.simulator.server import Simulator
from tests.server.provider.conftest import KEY, Connect
from tests.support.waiting import until
from tests.support.world import World


async def make_machines(world: World, count: int) -> None:
    """Running machines that are not ours."""
    product = next(each for each in await world.novita.products() if each.is_deployable)
    for number in range(count):
        name = f"trainer-{number}"
        ports = (Port(80, "http"),)
        await world.novita.create_instance(CreateInstance(name, product.id, "nginx", rootfs_gb=60, ports=ports))
    await until(lambda: all(each.status == "running" for each in world.machines()))


@pytest.mark.parametrize(
    ("dialect", "question", "answer"),
    [
        ({}, "first page", "both: pages 0 and 1 are the same"),
        ({"first_page": "0"}, "first page", "0: page 1 is the second page"),
        ({"first_page": "1"}, "first page", "1: page 0 is refused"),
        ({}, "page size", "1000 is accepted, seen with 3 instances"),
        ({"max_page_size": 100}, "page size", "100 is accepted, seen with 3 instances"),
        ({"max_page_size": 2, "caps_page_size": True}, "page size", "2: a page of 1000 is shortened"),
        ({}, "name filter", "substring"),
        ({"first_page": "0"}, "name filter", "substring"),
        ({"first_page": "1"}, "name filter", "substring"),
        ({"name_filter": "prefix"}, "name filter", "prefix"),
        ({"name_filter": "exact"}, "name filter", "exact"),
        ({"name_filter": "ignored"}, "name filter", "ignored: a name that nothing has selects instances"),
        ({}, "list", "with total; ports as in a get by id"),
        ({"list_ports": "noEndpoints"}, "list", "with total; ports without their addresses"),
        ({"list_ports": "none"}, "list", "with total; no ports"),
        ({"total": "missing"}, "list", "without total; ports as in a get by id"),
    ],
)
async def test_each_answer_is_the_dialect(world: World, dialect: dict[str, object], question: str, answer: str):
    await make_machines(world, 3)
    world.simulator.world.set_dialect(world.simulator.world.dialect.changed(dialect))
    made, writes = world.made(), [name for name in world.simulator.world.calls if name.startswith("POST")]

    answers = await ask_all(world.novita)

    assert answers[question] == answer
    assert (world.made(), [name for name in world.simulator.world.calls if name.startswith("POST")]) == (made, writes)


async def test_what_an_empty_account_can_not_show_is_not_known(world: World):
    assert await ask_all(world.novita) == {
        "first page": "not known: it takes an instance to see",
        "page size": "1000 is accepted, seen with 0 instances",
        "name filter": "not known: it takes an instance with a name of six letters to see",
        "list": "with total; ports not known: it takes a running instance to see",
    }


async def test_the_answers_are_stored_with_the_provider(
    world: World, connect: Connect, real: Simulator, database_url: str, capsys: pytest.CaptureFixture[str]
):
    settings = Settings(
        novita_api_base_url=real.url, novita_api_key=SecretStr(KEY), database_url=SecretStr(database_url)
    )
    await settle_questions(settings)
    assert "not stored: the database is not bound to this provider" in capsys.readouterr().out
    async with connect(real, key=KEY):
        pass

    await settle_questions(settings)

    assert "the answers are stored" in capsys.readouterr().out
    row = await world.one("SELECT answers, answered_at IS NOT NULL AS is_dated FROM provider_identity")
    assert (orjson.loads(row["answers"])["page size"], row["is_dated"]) == (
        "1000 is accepted, seen with 0 instances",
        True,
    )
