"""The check of the billing invariant notices each kind of violation."""

from tests.support.accounting import Facts, judge, machines_unaccounted
from tests.support.machines import make_machine
from tests.support.world import World

MARKER = "pl0123456789abcdef"
NONE = Facts(frozenset(), {}, frozenset())


def _facts(status: str, **fields: frozenset[str]) -> Facts:
    return Facts(
        fields.get("served", frozenset()), {MARKER: ("operation", status)}, fields.get("reported", frozenset())
    )


def test_a_served_visible_machine_is_accounted_for():
    assert judge([("m1", f"a-{MARKER}", "running")], _facts("CREATED", served=frozenset({"m1"})), {"m1"}) == []


def test_a_hidden_machine_is_a_violation_even_while_its_attempt_is_in_doubt():
    (violation,) = judge([("m1", f"a-{MARKER}", "running")], _facts("UNKNOWN"), ())
    assert violation == f"machine m1 (a-{MARKER}, running) is not in fleet"


def test_a_machine_of_an_ended_attempt_is_a_violation_until_an_event_reports_it():
    (violation,) = judge([("m1", f"a-{MARKER}", "running")], _facts("ABSENT"), {"m1"})
    assert violation == f"machine m1 (a-{MARKER}, running) serves no row; its attempt is ABSENT"
    assert judge([("m1", f"a-{MARKER}", "running")], _facts("ABSENT", reported=frozenset({"m1"})), {"m1"}) == []


def test_two_machines_for_one_create_are_a_violation_unless_one_is_being_removed():
    served = _facts("CREATED", served=frozenset({"m1", "m2"}))
    machines = [("m1", f"a-{MARKER}", "running"), ("m2", f"a-{MARKER}", "creating")]
    assert judge(machines, served, {"m1", "m2"}) == ["machines m1, m2 were made for one create"]
    assert judge([machines[0], ("m2", f"a-{MARKER}", "removing")], served, {"m1"}) == []


def test_machines_of_others_and_lost_ones_only_have_to_be_visible():
    assert judge([("m1", "console", "running")], NONE, ()) == []
    assert judge([("m1", f"a-{MARKER}", "running")], NONE, {"m1"}) == []


async def test_the_world_of_a_test_is_judged_by_what_its_api_shows(world: World):
    accepted = await world.create()
    await world.work_until_status(accepted.instance.id, "READY")
    await make_machine(world)
    assert await machines_unaccounted(world) == []

    await world.execute("UPDATE instance SET novita_id = NULL")

    (violation,) = await machines_unaccounted(world)
    assert violation.endswith("serves no row; its attempt is CREATED")
