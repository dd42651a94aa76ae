"""Private images use a credential stored at the provider: Pilotlight has only its id."""

import pytest
from pydantic import SecretStr

from server.enums import InstanceStatus
from server.errors import Invalid
from server.simulator.faults import Fault, FaultKind
from tests.support.world import CREATE, World

PRIVATE_TEMPLATE = "107674"


@pytest.mark.parametrize("by_template", [True, False])
async def test_unknown_registry_auth_fails_the_create_before_the_provider_is_called(world: World, by_template: bool):
    (auth,) = await world.novita.registry_auths()
    fields = {"template_id": PRIVATE_TEMPLATE} if by_template else {"registry_auth_id": auth.id}
    accepted = await world.create(**fields)
    world.simulator.world.table("auth").clear()
    await world.catalog.registry_auths(fresh=True)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "REGISTRY_AUTH_NOT_FOUND")
    assert (await world.instance(accepted.instance.id))["status"] == InstanceStatus.FAILED
    assert (world.made(), world.calls(CREATE)) == (0, 0)
    assert await world.attempts(accepted.operation.id) == []


async def test_a_credential_stored_a_moment_ago_is_found_past_the_cache(world: World):
    auths = dict(world.simulator.world.table("auth"))
    world.simulator.world.table("auth").clear()
    assert await world.catalog.registry_auths() == []
    world.simulator.world.table("auth").update(auths)

    accepted = await world.create(template_id=PRIVATE_TEMPLATE)

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)


async def test_only_the_id_of_a_registry_auth_travels(world: World):
    (auth,) = await world.novita.registry_auths()
    accepted = await world.create(template_id=PRIVATE_TEMPLATE)
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert [machine.image_auth_id for machine in world.machines()] == [auth.id]
    kept = str(await world.rows("SELECT * FROM instance")) + str(await world.rows("SELECT * FROM outbox"))
    assert "not-a-real-password" not in kept


async def test_the_callers_own_registry_auth_wins_over_the_templates(world: World):
    await world.novita.save_registry_auth(name="mine", username="u", password=SecretStr("p"))
    (mine,) = [auth.id for auth in await world.novita.registry_auths() if auth.name == "mine"]
    accepted = await world.create(template_id=PRIVATE_TEMPLATE, registry_auth_id=mine)

    assert (await world.instance(accepted.instance.id))["image_auth_id"] == mine


@pytest.mark.parametrize("fields", [{"registry_auth_id": "nonsense"}, {"template_id": PRIVATE_TEMPLATE}])
async def test_an_unknown_credential_is_refused_when_the_create_is_requested(world: World, fields: dict[str, str]):
    world.simulator.world.table("auth").clear()
    with pytest.raises(Invalid) as found:
        await world.create(**fields)
    assert [problem.code for problem in found.value.problems] == ["REGISTRY_AUTH_NOT_FOUND"]
    assert await world.value("SELECT count(*) FROM instance") == 0


async def test_a_create_is_accepted_while_credentials_can_not_be_read(world: World):
    (auth,) = await world.novita.registry_auths()
    world.faults(Fault(FaultKind.OUTAGE, routes=("GET /repository/auths",)))

    accepted = await world.create(registry_auth_id=auth.id)

    assert accepted.instance.image_auth_id == auth.id
