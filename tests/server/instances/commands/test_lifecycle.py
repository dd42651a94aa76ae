"""Refused commands change nothing, and operations that the provider refuses are reverted."""

import asyncio

import pytest

from server.enums import InstanceStatus, OperationKind
from server.errors import IllegalTransition, Invalid, NotFound, OperationInProgress, VersionConflict
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.drafts import Port
from server.instances.status import VERBS, actions
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import (
    EDIT,
    MIGRATE,
    RESTART,
    START,
    STOP,
    ask,
    changes,
    done,
    exited,
    fit_for,
    machine,
    ready,
    status_of,
    transitions_of,
)
from tests.support.world import World

ASKED = (OperationKind.START, OperationKind.STOP, OperationKind.RESTART, OperationKind.MIGRATE, OperationKind.UPDATE)
FORBIDDEN = [(kind, status) for kind in ASKED for status in InstanceStatus if status not in VERBS[kind].sources]


@pytest.mark.parametrize(("kind", "status"), FORBIDDEN)
async def test_an_operation_that_the_status_does_not_allow_is_refused(
    world: World, kind: OperationKind, status: InstanceStatus
):
    instance = await world.put(status, novita_id="n1")
    before = await world.counts()

    with pytest.raises(IllegalTransition) as refused:
        await ask(world, kind, instance.id)

    assert refused.value.code == VERBS[kind].refusal
    assert refused.value.current == status
    assert await world.counts() == before
    assert (await world.instance(instance.id))["version"] == 1
    assert world.calls() == 0


async def test_a_failed_instance_without_a_machine_can_only_be_renamed_and_deleted(world: World):
    instance = await world.put(InstanceStatus.FAILED)

    for kind in (OperationKind.STOP, OperationKind.RESTART, OperationKind.MIGRATE, OperationKind.UPDATE):
        with pytest.raises(IllegalTransition):
            await ask(world, kind, instance.id)

    assert actions(InstanceStatus.FAILED, has_machine=False) == (OperationKind.UPDATE, OperationKind.DELETE)
    await update_instance(world.database, Target(instance.id), UpdateDraft(name="renamed"), by=world.caller)
    assert (await world.instance(instance.id))["name"] == "renamed"


async def test_every_status_but_deleted_can_be_deleted():
    for status in InstanceStatus:
        can = OperationKind.DELETE in actions(status, has_machine=False)
        assert can is (status is not InstanceStatus.DELETED)


@pytest.mark.parametrize("kind", ASKED)
async def test_a_second_operation_is_refused_with_the_id_of_the_first(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    before = await world.counts()

    for second in ASKED:
        with pytest.raises(OperationInProgress) as refused:
            await ask(world, second, instance_id)
        assert refused.value.operation_id == accepted.operation.id

    assert await world.counts() == before


async def test_of_many_starts_at_once_one_is_accepted(world: World):
    instance_id = await exited(world)

    answers = await asyncio.gather(
        *(ask(world, OperationKind.START, instance_id) for _ in range(8)), return_exceptions=True
    )

    accepted = [answer for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer for answer in answers if isinstance(answer, OperationInProgress)]
    assert (len(accepted), len(refused)) == (1, 7)
    assert {each.operation_id for each in refused} == {accepted[0].operation.id}
    assert await world.value("SELECT count(*) FROM job") == 1
    assert await world.event_types(instance_id) == ["operation.started", "instance.starting"]


async def test_another_projects_instance_is_not_found(world: World):
    instance_id = await exited(world, "mine")
    stranger = await world.new_caller("other")
    before = await world.counts()

    for target in (Target(instance_id), Target(name="mine")):
        with pytest.raises(NotFound):
            await accept(world.database, OperationKind.START, target, by=stranger)
    with pytest.raises(NotFound):
        await update_instance(world.database, Target(instance_id), UpdateDraft(name="theirs"), by=stranger)

    assert await world.counts() == before


@pytest.mark.parametrize("target", [Target(), Target(name=""), Target(name="no\x00such"), Target(name="nobody")])
async def test_a_start_of_an_unknown_instance_is_refused(world: World, target: Target):
    with pytest.raises((Invalid, NotFound)):
        await accept(world.database, OperationKind.START, target, by=world.caller)


@pytest.mark.parametrize(
    ("draft", "code"),
    [
        (UpdateDraft(), "NOTHING_TO_UPDATE"),
        (UpdateDraft(name=" "), "INVALID_INSTANCE_NAME"),
        (UpdateDraft(labels={"": "x"}), "INVALID_LABEL"),
        (UpdateDraft(ports=(Port(2222, "http"),)), "INVALID_PORT"),
        (UpdateDraft(rootfs_size_gb=1001), "INVALID_ROOTFS_SIZE"),
        (UpdateDraft(rootfs_size_gb=59), "INVALID_ROOTFS_SIZE"),
        (UpdateDraft(name="two", idempotency_key=""), "INVALID_IDEMPOTENCY_KEY"),
        (UpdateDraft(name="taken"), "INSTANCE_NAME_TAKEN"),
    ],
)
async def test_an_update_that_can_not_be_is_refused(world: World, draft: UpdateDraft, code: str):
    instance = await world.put(InstanceStatus.READY, novita_id="n1")
    await world.put(InstanceStatus.READY, name="taken")
    before = await world.counts()

    with pytest.raises(Invalid) as refused:
        await update_instance(world.database, Target(instance.id), draft, by=world.caller)

    assert [problem.code for problem in refused.value.problems] == [code]
    assert await world.counts() == before


async def test_an_update_for_another_version_changes_nothing(world: World):
    instance = await world.put(InstanceStatus.READY, version=7)
    before = await world.counts()

    draft = UpdateDraft(name="two", expected_version=6)
    with pytest.raises(VersionConflict) as refused:
        await update_instance(world.database, Target(instance.id), draft, by=world.caller)

    assert refused.value.current == 7
    assert await world.counts() == before
    draft = UpdateDraft(name="two", expected_version=7)
    accepted = await update_instance(world.database, Target(instance.id), draft, by=world.caller)
    assert accepted.instance.version == 8


async def test_a_start_without_stock_fails_and_leaves_everything_as_it_was(world: World):
    instance_id = await exited(world)
    world.stock("*", 0)
    before = machine(world).starts

    operation = await done(world, OperationKind.START, instance_id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "RESOURCE_CONSTRAINTS",
        True,
    )
    assert (await world.instance(instance_id))["status_reason"] == "RESOURCE_CONSTRAINTS"
    assert await transitions_of(world, instance_id) == [
        "operation.started",
        "instance.starting",
        "operation.changed",
        "operation.finished",
        "instance.exited",
    ]
    assert changes(world) == {START: 1}
    assert (machine(world).status, machine(world).starts) == ("exited", before)

    world.stock("*", 8)
    assert (await done(world, OperationKind.START, instance_id))["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("kind", "route"), [(OperationKind.RESTART, RESTART), (OperationKind.MIGRATE, MIGRATE), (OperationKind.STOP, STOP)]
)
async def test_what_the_provider_refuses_leaves_the_instance_ready_with_its_times(
    world: World, kind: OperationKind, route: str
):
    instance_id = await ready(world)
    before = await world.instance(instance_id)
    world.faults(Fault(FaultKind.ERROR, (route,), status=400, reason="NOT_SUPPORTED", message="not for this one"))

    operation = await done(world, kind, instance_id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "PROVIDER_VALIDATION_FAILED",
        False,
    )
    after = await world.instance(instance_id)
    assert after["status"] == "READY"
    assert (after["running_at"], after["ready_at"]) == (before["running_at"], before["ready_at"])
    assert changes(world) == {route: 1}
    assert machine(world).is_running


async def test_a_migration_without_room_elsewhere_leaves_the_instance_ready(world: World):
    instance_id = await ready(world)
    world.stock("*", 0)

    operation = await done(world, OperationKind.MIGRATE, instance_id)

    assert (operation["error_code"], operation["error_retryable"]) == ("RESOURCE_CONSTRAINTS", True)
    assert await status_of(world, instance_id) == "READY"
    assert machine(world).is_running


async def test_an_update_that_the_provider_refuses_changes_nothing(world: World):
    instance_id = await ready(world)
    world.faults(Fault(FaultKind.ERROR, (EDIT,), status=400, reason="INVALID_PARAM", message="no"))

    draft = UpdateDraft(ports=(Port(8080, "http"),), rootfs_size_gb=90)
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "FAILED"
    row = await world.instance(instance_id)
    assert (row["status"], row["rootfs_size_gb"]) == ("READY", 60)
    assert machine(world).rootfs_size == 60


async def test_a_start_whose_image_can_not_be_pulled_fails_with_the_reason(world: World):
    instance_id = await exited(world)
    world.faults(Fault(FaultKind.PULL_FAILURE, (START,)))

    operation = await done(world, OperationKind.START, instance_id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "IMAGE_PULL_FAILED")
    assert await status_of(world, instance_id) == "FAILED"
    assert actions(InstanceStatus.FAILED, has_machine=True) == (
        OperationKind.STOP,
        OperationKind.RESTART,
        OperationKind.MIGRATE,
        OperationKind.UPDATE,
        OperationKind.DELETE,
    )


@pytest.mark.parametrize("kind", ASKED)
async def test_a_machine_that_is_gone_at_the_provider_fails_the_instance(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    await world.execute("UPDATE instance SET novita_id = 'nobody' WHERE id = $1", instance_id)

    operation = await done(world, kind, instance_id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "GONE_AT_PROVIDER",
        False,
    )
    assert await status_of(world, instance_id) == "FAILED"
    assert changes(world) == {}
