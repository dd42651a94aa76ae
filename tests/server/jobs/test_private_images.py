"""Private images use a credential stored at the provider: Pilotlight has only its id."""

import pytest

from server.enums import InstanceStatus
from tests.support.world import CREATE, World

PRIVATE_TEMPLATE = "107674"


@pytest.mark.parametrize("by_template", [True, False])
async def test_unknown_registry_auth_fails_the_create_before_the_provider_is_called(world: World, by_template: bool):
    if by_template:
        accepted = await world.create(template_id=PRIVATE_TEMPLATE)
        world.simulator.world.table("auth").clear()
    else:
        accepted = await world.create(registry_auth_id="nonsense")

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
    accepted = await world.create(template_id=PRIVATE_TEMPLATE, registry_auth_id="mine")

    assert (await world.instance(accepted.instance.id))["image_auth_id"] == "mine"
