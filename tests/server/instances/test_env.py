"""Environment variables: which are secret, where their values may be, and how they are encrypted."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from server.cli import doctor
from server.cli.encrypt import encrypt
from server.clock import format_id
from server.config import Settings
from server.encryption import Cipher
from server.enums import InstanceStatus
from server.errors import StartupProblem
from server.instances.env import INSTANCE_ID, MACHINE, MAX_ENV, SECRET_WORDS, looks_secret
from server.queue.kinds import CleanUp
from tests.support.receiver import Receiver
from tests.support.world import World

S = InstanceStatus
OLD, NEW = "an old key that only tests encrypt with", "a new key that only tests encrypt with"
TOKEN, MODEL = "hf_a_value_that_stays_hidden", "a-model-that-stays-hidden-too"
ENV = {"HF_TOKEN": TOKEN, "MODEL": MODEL}


async def whole_database(world: World) -> dict[str, str]:
    """Every table as text, as a dump has it."""
    tables = await world.rows(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    found: dict[str, str] = {}
    for (table,) in tables:
        rows = await world.rows(f'SELECT to_jsonb(t)::text FROM "{table}" AS t')
        found[table] = "\n".join(row[0] for row in rows)
    return found


async def tables_with(world: World, *values: str) -> set[str]:
    dump = await whole_database(world)
    assert len(dump) > 15
    return {table for table, text in dump.items() if any(value in text for value in values)}


async def stored(world: World, instance_id: Any) -> dict[str, Any]:
    return json.loads((await world.instance(instance_id))["env"])


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("HF_TOKEN", True),
        ("aws_secret_access_key", True),
        ("DbPassword", True),
        ("DATABASE_URL", True),
        ("OPENAI_APIKEY", True),
        ("HF_HOME", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("BASE_URL", False),
    ],
)
def test_names_that_look_like_secrets_are_secret(name: str, is_secret: bool):
    assert looks_secret(name) is is_secret


def test_the_documented_list_of_names_is_the_one_in_use():
    with open("docs/api.md") as page:
        line = next(line for line in page if "`*TOKEN*`" in line)
    assert [word.strip("`*., \n") for word in line.split("|")[2].split()] == list(SECRET_WORDS)


@pytest.mark.parametrize("key", [None, NEW])
async def test_values_are_in_the_row_only_and_in_no_row_with_a_key(
    world: World, receiver: Receiver, key: str | None, capsys: pytest.CaptureFixture[str]
):
    await world.configure(encryption_key=None if key is None else SecretStr(key))
    created = await world.create(env=ENV, webhook_url=receiver.url, idempotency_key="once")
    again = await world.create(env=ENV, webhook_url=receiver.url, idempotency_key="once")
    assert again.replayed
    await world.work_until_status(created.instance.id, S.READY)
    await world.work_until(lambda: world.value("SELECT bool_and(status = 'DELIVERED') FROM delivery"))

    (machine,) = world.machines()
    assert dict(machine.envs) == {**ENV, INSTANCE_ID: format_id("inst", created.instance.id), MACHINE: "1"}
    assert await tables_with(world, TOKEN, MODEL) == ({"instance"} if key is None else set())
    assert await tables_with(world, "HF_TOKEN") == {"instance"}
    sent = b"".join(each.body for each in receiver.got).decode()
    assert "instance.ready" in sent
    assert TOKEN not in sent
    assert "HF_TOKEN" not in sent
    logged = capsys.readouterr()
    assert TOKEN not in logged.out + logged.err

    await world.delete(created.instance.id)
    await world.work_until_status(created.instance.id, S.DELETED)
    row = await world.instance(created.instance.id)
    assert (row["env"], row["secret_env"]) == ("{}", None)
    assert await tables_with(world, TOKEN, MODEL, "HF_TOKEN") == set()


@pytest.mark.parametrize("many", [MAX_ENV - 2, MAX_ENV - 1])
async def test_a_new_machine_gets_our_variables_unless_they_are_too_many(world: World, many: int):
    env = {f"V{number}": "1" for number in range(many)}
    created = await world.create(env=env)

    await world.work_until_status(created.instance.id, S.READY)

    (machine,) = world.machines()
    ours = {INSTANCE_ID: format_id("inst", created.instance.id), MACHINE: "1"} if many == MAX_ENV - 2 else {}
    assert dict(machine.envs) == env | ours
    assert await stored(world, created.instance.id) == env


async def test_clean_up_erases_what_an_older_process_deleted(world: World):
    gone = await world.put(S.DELETED, env=ENV)
    living = await world.put(S.READY, env=ENV)

    await world.enqueue(CleanUp())
    await world.work_once()

    assert await stored(world, gone.id) == {}
    assert await stored(world, living.id) == ENV


async def test_a_worker_without_the_key_waits_for_one_that_has_it(world: World):
    await world.configure(encryption_key=SecretStr(NEW))
    created = await world.create(env=ENV)
    operation_id = created.operation.id

    await world.configure(encryption_key=None)
    await world.work_once()
    operation = await world.operation(operation_id)
    assert (operation["status"], operation["last_error_code"]) == ("RUNNING", "ENCRYPTION_KEY_MISSING")
    assert world.made() == 0

    await world.configure(encryption_key=SecretStr(f"{OLD},{NEW}"))
    await world.work_until_status(created.instance.id, S.READY)
    (machine,) = world.machines()
    assert dict(machine.envs) == {**ENV, INSTANCE_ID: format_id("inst", created.instance.id), MACHINE: "1"}


async def test_a_create_whose_key_stays_missing_fails_with_what_to_do(world: World):
    await world.configure(encryption_key=SecretStr(NEW))
    created = await world.create(env=ENV)
    await world.configure(encryption_key=None)
    await world.execute("UPDATE operation SET created_at = created_at - interval '1 day'")

    over = await world.work_until_over(created.operation.id)

    assert (over["error_code"], over["error_retryable"]) == ("ENCRYPTION_KEY_MISSING", True)
    assert world.made() == 0


async def test_keys_are_introduced_and_replaced_without_losing_a_value(
    world: World, database_url: str, capsys: pytest.CaptureFixture[str]
):
    def settings(*keys: str) -> Settings:
        return Settings(
            database_url=SecretStr(database_url), encryption_key=SecretStr(",".join(keys)) if keys else None
        )

    async def finding(*keys: str) -> str:
        await doctor.examine(settings(*keys))
        return next(line for line in capsys.readouterr().out.splitlines() if " encryption " in line)

    plain = await world.put(S.READY, env=ENV)
    assert "no ENCRYPTION_KEY" in await finding()
    assert "1 instances are not stored with the first key" in await finding(OLD)

    await encrypt(settings(OLD), database_url, undo=False)
    assert await tables_with(world, TOKEN, MODEL) == set()
    assert "all variables are stored with the first key" in await finding(OLD)
    first = await stored(world, plain.id)

    assert "1 instances are not stored with the first key" in await finding(NEW, OLD)
    await encrypt(settings(NEW, OLD), database_url, undo=False)
    second = await stored(world, plain.id)
    assert second["MODEL"]["key"] != first["MODEL"]["key"]
    assert Cipher.of(SecretStr(NEW)).open(second["MODEL"]) == MODEL
    assert "lacks the key of the variables of 1 instances" in await finding(OLD)
    with pytest.raises(StartupProblem, match="does not have the key"):
        await encrypt(settings(OLD), database_url, undo=False)
    assert await stored(world, plain.id) == second

    await encrypt(settings(NEW), database_url, undo=True)
    assert await stored(world, plain.id) == ENV
    version = (await world.instance(plain.id))["version"]
    assert version == 1  # how it is stored is no change of the instance
