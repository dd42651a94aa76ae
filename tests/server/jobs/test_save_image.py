"""Saving an instance as an image: one job of the provider, followed to its end, whatever happens on the way."""

import asyncio
from uuid import UUID

import pytest

from server.errors import IllegalTransition, Invalid
from server.instances.commands.lifecycle import Target
from server.instances.commands.save_image import SaveImageDraft, save_image
from server.instances.idempotency import Accepted
from server.novita.client import NovitaClient
from server.simulator.faults import Fault, FaultKind
from server.simulator.routes.jobs import fail_job
from tests.support.lifecycle import (
    SAVE_IMAGE,
    Dying,
    age,
    changes,
    exited,
    ready,
    rescue,
    status_of,
    transitions_of,
)
from tests.support.world import World

IMAGE = "registry.example.test/saved:1"
JOBS = "GET /jobs"


async def ask(world: World, instance_id: UUID, **fields: str) -> Accepted:
    draft = SaveImageDraft(IMAGE, **fields)
    return await save_image(world.database, world.catalog, Target(instance_id), draft, by=world.caller)


def jobs(world: World) -> list[str]:
    return list(world.simulator.world.table("job"))


async def test_the_operation_ends_with_the_providers_job(world: World):
    instance_id = await exited(world)

    accepted = await ask(world, instance_id, idempotency_key="k")
    again = await ask(world, instance_id, idempotency_key="k")
    operation = await world.work_until_over(accepted.operation.id)

    assert (accepted.operation.kind, accepted.operation.action) == ("UPDATE", "SAVE_IMAGE")
    assert (again.operation.id, again.replayed) == (accepted.operation.id, True)
    assert (operation["status"], operation["error_code"]) == ("SUCCEEDED", None)
    assert await transitions_of(world, instance_id) == ["operation.started", "operation.changed", "operation.finished"]
    assert (changes(world), len(jobs(world))) == ({SAVE_IMAGE: 1}, 1)
    assert await status_of(world, instance_id) == "EXITED"


@pytest.mark.parametrize("spoiled", [FaultKind.LOST_ANSWER, FaultKind.ERROR_AFTER, FaultKind.INVALID_STATE_AFTER])
async def test_after_a_lost_response_the_job_is_found_and_no_second_one_begun(world: World, spoiled: FaultKind):
    instance_id = await exited(world)
    first = await ask(world, instance_id)
    await world.work_until_over(first.operation.id)
    world.faults(Fault(spoiled, (SAVE_IMAGE,), times=1))

    accepted = await ask(world, instance_id)
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert (changes(world), len(jobs(world))) == ({SAVE_IMAGE: 2}, 2)  # one for each operation


async def test_a_worker_that_dies_right_after_the_call_is_taken_over(world: World):
    accepted = await ask(world, await exited(world))
    world.novita.__class__ = Dying
    with pytest.raises(asyncio.CancelledError):
        await world.work_once()
    world.novita.__class__ = NovitaClient

    await rescue(world)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], changes(world)) == ("SUCCEEDED", {SAVE_IMAGE: 1})


async def test_a_call_that_never_arrived_is_sent_again_only_when_it_can_no_longer_arrive(world: World):
    accepted = await ask(world, await exited(world))
    world.faults(Fault(FaultKind.DROP, (SAVE_IMAGE,), times=1))
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert changes(world) == {SAVE_IMAGE: 1}

    await age(world, accepted.operation.id, 120)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], changes(world), len(jobs(world))) == ("SUCCEEDED", {SAVE_IMAGE: 2}, 1)


async def test_a_failed_job_fails_the_operation_with_the_providers_words(world: World):
    world.simulator.world.set_speed(0.01)
    instance_id = await exited(world)
    accepted = await ask(world, instance_id)
    await world.work_once()
    (job,) = jobs(world)
    fail_job(world.simulator.world, job, "the registry refused the push")

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "IMAGE_NOT_SAVED")
    assert operation["error_message"] == "the registry refused the push"
    assert await status_of(world, instance_id) == "EXITED"


async def test_a_refusal_of_the_provider_ends_the_operation_and_begins_no_job(world: World):
    instance_id = await exited(world)
    refusal = Fault(FaultKind.ERROR, (SAVE_IMAGE,), status=400, reason="VALIDATOR_PARAM", message="no such repository")
    world.faults(refusal)

    accepted = await ask(world, instance_id)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "PROVIDER_VALIDATION_FAILED")
    assert "no such repository" in operation["error_message"]
    assert (changes(world), jobs(world), await status_of(world, instance_id)) == ({SAVE_IMAGE: 1}, [], "EXITED")


async def test_only_an_exited_instance_with_a_known_credential_is_saved(world: World):
    running = await ready(world)
    with pytest.raises(IllegalTransition) as refused:
        await ask(world, running)
    assert refused.value.code == "INSTANCE_NOT_EXITED"
    with pytest.raises(Invalid) as invalid:
        await ask(world, running, registry_auth_id="nothing")
    assert invalid.value.code == "REGISTRY_AUTH_NOT_FOUND"
    assert (await world.counts())["operation"] == 0


async def test_a_credential_that_is_deleted_meanwhile_fails_it_before_the_call(world: World):
    (auth,) = await world.novita.registry_auths()
    accepted = await ask(world, await exited(world), registry_auth_id=auth.id)
    world.simulator.world.table("auth").clear()
    await world.catalog.registry_auths(fresh=True)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["error_code"], changes(world)) == ("REGISTRY_AUTH_NOT_FOUND", {})
