"""Constraints that PostgreSQL enforces, whatever the code above it does."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from server.clock import new_id
from server.enums import InstanceStatus
from tests.support.world import World

OPERATION = """
    INSERT INTO operation (id, project_id, instance_id, kind, status, phase, finished_at, error_code)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
ATTEMPT = """
    INSERT INTO attempt (id, operation_id, instance_id, number, marker, region, cluster_id, product_id, billing_mode,
                         price_per_hour_e5, status, novita_id, finished_at)
    VALUES ($1, $2, $3, $4, $5, 'AS-SGP-02', $6, 'p', 'spot', 1, $7, $8, CASE WHEN $9 THEN now() END)
"""


async def operation(world: World, instance_id: UUID, status: str = "QUEUED", **fields: Any) -> UUID:
    operation_id = new_id()
    await world.execute(
        OPERATION,
        operation_id,
        world.caller.project_id,
        instance_id,
        fields.get("kind", "CREATE"),
        status,
        fields.get("phase", "WAITING"),
        fields.get("finished_at"),
        fields.get("error_code"),
    )
    return operation_id


async def attempt(world: World, operation_id: UUID, instance_id: UUID, **fields: Any) -> None:
    await world.execute(
        ATTEMPT,
        new_id(),
        operation_id,
        instance_id,
        fields.get("number", 1),
        fields.get("marker", new_id().hex),
        fields.get("cluster_id", "c"),
        fields.get("status", "ASKING"),
        fields.get("novita_id"),
        fields.get("is_over", False),
    )


async def refused(name: str, statement: Any) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as found:
        await statement
    assert found.value.constraint_name == name


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("status = 'FAILED'", "instance_failed_says_why"),
        ("failure_code = 'X'", "instance_failed_says_why"),
        ("status = 'DELETED'", "instance_deleted_has_a_time"),
        ("deleted_at = now()", "instance_deleted_has_a_time"),
        ("ready_at = NULL", "instance_ready_has_a_time"),
        ("status = 'NAPPING'", "instance_status_is_known"),
        ("billing = 'BARTER'", "instance_billing_is_known"),
        ("gpu_count = -1", "instance_gpu_count_is_possible"),
        ("gpu_count = 9", "instance_gpu_count_is_possible"),
        ("project_id = gen_random_uuid()", "instance_project_id_fkey"),
    ],
)
async def test_an_instance_cannot_contradict_itself(world: World, change: str, name: str):
    await world.put(InstanceStatus.READY)
    await refused(name, world.execute(f"UPDATE instance SET {change}"))


async def test_two_living_instances_of_a_project_cannot_share_a_name(world: World):
    await world.put(name="same")
    await world.put(InstanceStatus.DELETED, name="same")
    await world.put(name="same", project_id=await world.new_project("another"))
    third = await world.put(name="other")

    await refused(
        "instance_name_is_unique_among_the_living",
        world.execute("UPDATE instance SET name = 'same' WHERE id = $1", third.id),
    )


async def test_two_instances_cannot_be_the_same_machine(world: World):
    await world.put(novita_id="n1")
    other = await world.put()
    await refused(
        "instance_novita_id_is_unique_among_the_living",
        world.execute("UPDATE instance SET novita_id = 'n1' WHERE id = $1", other.id),
    )


async def test_an_instance_has_one_open_operation(world: World):
    instance = await world.put()
    first = await operation(world, instance.id, "RUNNING")
    await refused("operation_one_open_per_instance", operation(world, instance.id))

    await world.execute("UPDATE operation SET status = 'SUCCEEDED', finished_at = now() WHERE id = $1", first)
    await operation(world, instance.id)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("status = 'FAILED', finished_at = now()", "operation_failed_says_why"),
        ("error_code = 'X'", "operation_failed_says_why"),
        ("status = 'SUCCEEDED'", "operation_over_has_a_time"),
        ("finished_at = now()", "operation_over_has_a_time"),
        ("status = 'MAYBE', finished_at = now()", "operation_status_is_known"),
        ("kind = 'PAINT'", "operation_kind_is_known"),
        ("phase = 'LUNCH'", "operation_phase_is_known"),
    ],
)
async def test_an_operation_cannot_contradict_itself(world: World, change: str, name: str):
    await operation(world, (await world.put()).id)
    await refused(name, world.execute(f"UPDATE operation SET {change}"))


@pytest.mark.parametrize("second", ["ASKING", "UNKNOWN"])
async def test_an_instance_has_one_live_attempt(world: World, second: str):
    instance = await world.put()
    operation_id = await operation(world, instance.id)
    await attempt(world, operation_id, instance.id, status="UNKNOWN")

    await refused("attempt_one_live_per_instance", attempt(world, operation_id, instance.id, number=2, status=second))


async def test_an_operation_makes_one_machine(world: World):
    instance = await world.put()
    operation_id = await operation(world, instance.id)
    await attempt(world, operation_id, instance.id, status="CREATED", novita_id="n1", is_over=True)

    await refused(
        "attempt_one_created_per_operation",
        attempt(world, operation_id, instance.id, number=2, status="CREATED", novita_id="n2", is_over=True),
    )


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"status": "CREATED", "is_over": True}, "attempt_created_has_novita_id"),
        ({"status": "REJECTED", "novita_id": "n1", "is_over": True}, "attempt_created_has_novita_id"),
        ({"status": "ASKING", "is_over": True}, "attempt_over_has_a_time"),
        ({"status": "ABSENT"}, "attempt_over_has_a_time"),
        ({"marker": None}, "attempt_asked_says_for_what"),
        ({"cluster_id": None}, "attempt_asked_says_for_what"),
        ({"status": "DREAMT", "is_over": True}, "attempt_status_is_known"),
    ],
)
async def test_an_attempt_cannot_contradict_itself(world: World, fields: dict[str, Any], name: str):
    instance = await world.put()
    operation_id = await operation(world, instance.id)
    await refused(name, attempt(world, operation_id, instance.id, **fields))


async def test_a_marker_and_a_number_are_used_once(world: World):
    first, second = await world.put(), await world.put()
    one, two = await operation(world, first.id), await operation(world, second.id)
    await attempt(world, one, first.id, marker="m")
    await refused("attempt_marker_is_unique", attempt(world, two, second.id, marker="m"))
    await refused("attempt_number_is_unique", attempt(world, one, first.id, status="REJECTED", is_over=True, number=1))


async def test_an_idempotency_key_stands_for_an_operation_that_exists(world: World):
    statement = "INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id) VALUES ($1, 'k', '', $2)"
    await refused("idempotency_key_operation_id_fkey", world.execute(statement, world.caller.project_id, new_id()))


async def test_a_running_job_has_a_claim(world: World):
    await world.execute("INSERT INTO job (kind, args, priority, run_at, due_at) VALUES ('X', '{}', 1, now(), now())")
    await refused("job_running_has_a_claim", world.execute("UPDATE job SET status = 'RUNNING'"))
    await refused("job_status_is_known", world.execute("UPDATE job SET status = 'DONE'"))


async def test_a_project_has_a_name_and_a_token_a_known_role(world: World):
    await refused("project_has_a_name", world.execute("UPDATE project SET name = ''"))
    await refused("token_role_is_known", world.execute("UPDATE token SET role = 'GOD'"))
