"""Upgrading an instance in place: its machine is reset once, with what was requested."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from server.cli.encrypt import encrypt
from server.config import Settings
from server.encryption import Cipher
from server.enums import InstanceStatus
from server.errors import Invalid, NotFound, OperationInProgress
from server.instances.commands.lifecycle import Target
from server.instances.commands.upgrade import UpgradeDraft, upgrade_instance
from server.instances.env import StoredCounts, count_stored
from server.instances.idempotency import Accepted
from server.novita.client import NovitaClient
from server.simulator import lifecycle
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import (
    UPGRADE,
    Dying,
    changes,
    exited,
    machine,
    ready,
    rescue,
    row_of,
    status_of,
    transitions_of,
)
from tests.support.world import World

SECRET = "correct-horse-battery"


async def ask(world: World, instance_id: UUID, **fields: Any) -> Accepted:
    return await upgrade_instance(
        world.database,
        world.catalog,
        Target(instance_id),
        UpgradeDraft(**{"image": "nginx:1.28", **fields}),
        by=world.caller,
        cipher=Cipher.of(world.settings.encryption_key),
    )


@pytest.mark.parametrize("is_exited", [False, True])
async def test_the_machine_is_reset_with_the_new_image_and_becomes_ready(world: World, is_exited: bool):
    instance_id = await (exited if is_exited else ready)(world)

    accepted = await ask(world, instance_id, command="serve", env={"A": "1"}, idempotency_key="k")
    again = await ask(world, instance_id, command="serve", env={"A": "1"}, idempotency_key="k")
    operation = await world.work_until_over(accepted.operation.id)

    assert (accepted.operation.kind, accepted.operation.action) == ("UPDATE", "UPGRADE")
    assert (again.operation.id, again.replayed) == (accepted.operation.id, True)
    assert (operation["status"], operation["error_code"]) == ("SUCCEEDED", None)
    assert (await transitions_of(world, instance_id))[:2] == [
        "operation.started",
        "instance.starting" if is_exited else "instance.restarting",
    ]
    made, row = machine(world), await row_of(world, instance_id)
    assert (made.image_url, made.command, made.envs, made.starts) == ("nginx:1.28", "serve", [("A", "1")], 2)
    assert (row.status, row.image, row.command, row.env) == ("READY", "nginx:1.28", "serve", {"A": "1"})
    assert changes(world) == {UPGRADE: 1}


async def test_a_machine_keeps_our_variables(world: World):
    created = await world.create(env={"A": "1"})
    await world.work_until_status(created.instance.id, InstanceStatus.READY)
    before = dict(machine(world).envs)

    operation = await world.work_until_over((await ask(world, created.instance.id, env={"B": "2"})).operation.id)

    ours = {name: before[name] for name in ("PILOTLIGHT_INSTANCE_ID", "PILOTLIGHT_MACHINE")}
    assert (operation["status"], dict(machine(world).envs)) == ("SUCCEEDED", {"B": "2", **ours})
    assert (await row_of(world, created.instance.id)).env == {"B": "2"}


async def test_what_is_left_out_stays(world: World):
    instance_id = await ready(world)
    first = await ask(world, instance_id, command="serve", entrypoint="/run", env={"A": "1"})
    await world.work_until_over(first.operation.id)

    second = await ask(world, instance_id, image="nginx:1.29")
    await world.work_until_over(second.operation.id)

    made = machine(world)
    assert (made.image_url, made.command, made.entrypoint) == ("nginx:1.29", "serve", "/run")
    assert (made.envs, (await row_of(world, instance_id)).env) == ([("A", "1")], {"A": "1"})


@pytest.mark.parametrize("spoiled", [FaultKind.LOST_ANSWER, FaultKind.ERROR_AFTER, FaultKind.INVALID_STATE_AFTER])
async def test_an_accepted_upgrade_with_an_error_response_is_done_once(world: World, spoiled: FaultKind):
    instance_id = await ready(world)
    world.faults(Fault(spoiled, (UPGRADE,), times=1))

    operation = await world.work_until_over((await ask(world, instance_id, env={"A": "1"})).operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert (changes(world), machine(world).starts) == ({UPGRADE: 1}, 2)
    assert (await row_of(world, instance_id)).image == "nginx:1.28"


async def test_a_worker_that_dies_right_after_the_call_is_taken_over(world: World):
    instance_id = await ready(world)
    accepted = await ask(world, instance_id)
    world.novita.__class__ = Dying
    with pytest.raises(asyncio.CancelledError):
        await world.work_once()
    world.novita.__class__ = NovitaClient

    await rescue(world)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], changes(world)) == ("SUCCEEDED", {UPGRADE: 1})
    assert (await row_of(world, instance_id)).image == "nginx:1.28"


async def test_an_accepted_upgrade_is_not_sent_again_however_long_nothing_is_visible(world: World):
    instance_id = await ready(world)
    accepted = await ask(world, instance_id)
    await world.execute(
        """UPDATE operation SET phase = 'RESTARTING', status = 'RUNNING', asked_at = now() - interval '1 hour',
           before = before || '{"accepted": true, "run": null}' WHERE id = $1""",
        accepted.operation.id,
    )

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], changes(world)) == ("SUCCEEDED", {})


async def test_a_credential_that_is_deleted_meanwhile_fails_it_before_the_call(world: World):
    (auth,) = await world.novita.registry_auths()
    instance_id = await ready(world)
    accepted = await ask(world, instance_id, registry_auth_id=auth.id)
    world.simulator.world.table("auth").clear()
    await world.catalog.registry_auths(fresh=True)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "REGISTRY_AUTH_NOT_FOUND")
    assert (await status_of(world, instance_id), changes(world)) == ("READY", {})
    assert (await row_of(world, instance_id)).image == "nginx"


@pytest.mark.parametrize("is_exited", [False, True])
async def test_an_upgrade_that_the_provider_refuses_leaves_the_instance_as_it_was(world: World, is_exited: bool):
    instance_id = await (exited if is_exited else ready)(world)
    before = await row_of(world, instance_id)
    world.faults(Fault(FaultKind.ERROR, (UPGRADE,), status=400, reason="VALIDATOR_PARAM", message="no such image"))

    operation = await world.work_until_over((await ask(world, instance_id, env={"A": "1"})).operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "PROVIDER_VALIDATION_FAILED")
    after = await row_of(world, instance_id)
    assert (after.status, after.image, after.env) == (before.status, before.image, before.env)
    assert (changes(world), machine(world).starts) == ({UPGRADE: 1}, 1)


async def test_an_image_that_can_not_be_pulled_fails_the_instance_until_another_upgrade(world: World):
    instance_id = await ready(world)
    accepted = await ask(world, instance_id, image="nothing:1")
    speed = world.simulator.world.clock.speed
    world.simulator.world.set_speed(0.01)
    await world.work_once()
    lifecycle.fail_pull(world.simulator.world, machine(world))
    world.simulator.world.set_speed(speed)
    operation = await world.work_until_over(accepted.operation.id)
    assert (operation["status"], operation["error_code"]) == ("FAILED", "IMAGE_PULL_FAILED")
    row = await row_of(world, instance_id)
    assert (row.status, row.image) == ("FAILED", "nothing:1")

    again = await world.work_until_over((await ask(world, instance_id, image="nginx:1.28")).operation.id)

    assert again["status"] == "SUCCEEDED"
    assert ((await row_of(world, instance_id)).status, machine(world).image_url) == ("READY", "nginx:1.28")


async def test_of_two_upgrades_at_once_one_is_accepted_and_other_projects_find_nothing(world: World):
    instance_id = await ready(world)
    both = await asyncio.gather(*(ask(world, instance_id) for _ in range(2)), return_exceptions=True)
    assert {type(each) for each in both} == {Accepted, OperationInProgress}
    stranger = await world.new_caller("strangers")
    draft, catalog = UpgradeDraft(image="nginx:1.28"), world.catalog
    with pytest.raises(NotFound):
        await upgrade_instance(world.database, catalog, Target(instance_id), draft, by=stranger, cipher=Cipher.of(None))
    assert await world.value("SELECT count(*) FROM operation") == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"image": None}, "NOTHING_TO_UPDATE"),
        ({"image": " "}, "INVALID_IMAGE"),
        ({"env": {"A=": "1"}}, "INVALID_ENV"),
        ({"command": "c" * 2048}, "INVALID_COMMAND"),
        ({"registry_auth_id": "nothing"}, "REGISTRY_AUTH_NOT_FOUND"),
    ],
)
async def test_it_is_checked_as_a_create_is(world: World, fields: dict[str, Any], code: str):
    instance_id = await ready(world)
    with pytest.raises(Invalid) as refused:
        await ask(world, instance_id, **fields)
    assert refused.value.code == code
    assert (await world.counts())["operation"] == 0


async def test_variables_are_stored_encrypted_and_erased_from_the_operation(world: World):
    await world.configure(encryption_key=SecretStr("a new key that only tests encrypt with"))
    instance_id = await ready(world)

    accepted = await ask(world, instance_id, env={"API_TOKEN": SECRET})
    stored = str(await world.operation(accepted.operation.id))
    operation = await world.work_until_over(accepted.operation.id)

    assert machine(world).envs == [("API_TOKEN", SECRET)]
    kept = str(await world.rows("SELECT * FROM instance")) + str(await world.rows("SELECT * FROM outbox"))
    assert SECRET not in stored + str(operation) + kept
    assert '"env"' not in operation["wanted"]


async def test_the_key_is_replaced_while_an_upgrade_is_in_progress(world: World, database_url: str):
    old, new = "an old key that only tests encrypt with", "a new key that only tests encrypt with"
    both = Settings(encryption_key=SecretStr(f"{new},{old}"))
    await world.configure(encryption_key=SecretStr(old))
    instance_id = await ready(world)
    accepted = await ask(world, instance_id, env={"API_TOKEN": SECRET})
    async with world.database.read() as session:
        assert await count_stored(session, Cipher.of(both.encryption_key)) == StoredCounts(outdated=1, unreadable=0)

    await encrypt(both, database_url, undo=False)
    async with world.database.read() as session:
        assert await count_stored(session, Cipher.of(SecretStr(new))) == StoredCounts(outdated=0, unreadable=0)
    await world.configure(encryption_key=SecretStr(new))
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("SUCCEEDED", None)
    assert machine(world).envs == [("API_TOKEN", SECRET)]
