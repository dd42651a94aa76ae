"""The commands beside `up`, most of them while it runs."""

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest
from gql.transport.exceptions import TransportQueryError
from pydantic import SecretStr

from server.cli.main import main
from server.db.migrate import known_head
from server.novita.client import NovitaClient
from server.novita.models import CreateInstance
from tests.support.log_config import kept_log_config
from tests.support.processes import Up, control, free_port, pilotlight, run
from tests.support.waiting import until
from tests.support.watcher import CREATE, GraphQLClient


async def test_a_token_made_while_up_runs_opens_the_door_as_far_as_its_role_goes(shared_up: Up):
    made = await run("token", "create", "dashboard", "--role", "reader", "--days", "1", "--home", str(shared_up.home))

    assert made.code == 0
    secret = made.printed.strip()
    assert secret.startswith("pl_")
    assert secret not in made.said
    reader = GraphQLClient(shared_up.graphql_url, secret)
    assert await reader.ask("{ __typename }") == {"__typename": "Query"}
    with pytest.raises(TransportQueryError) as caught:
        await reader.ask(CREATE, name="not-for-readers")
    assert [error["extensions"]["code"] for error in caught.value.errors or []] == ["FORBIDDEN"]


async def test_an_unknown_token_is_refused(shared_up: Up):
    with pytest.raises(TransportQueryError) as caught:
        await GraphQLClient(shared_up.graphql_url, "pl_nobodys").ask("{ __typename }")

    assert [error["extensions"]["code"] for error in caught.value.errors or []] == ["UNAUTHENTICATED"]


async def test_doctor_finds_the_running_database_and_nothing_wrong(shared_up: Up):
    examined = await run("doctor", "--home", str(shared_up.home))

    assert examined.code == 0
    assert "✗" not in examined.printed
    assert [line.split()[1] for line in examined.printed.splitlines()] == [
        "versions",
        "settings",
        "database",
        "tables",
        "webhooks",
        "encryption",
        "traces",
        "provider",
        "identity",
    ]
    password = str(shared_up.ready["databaseUrl"]).split(":")[2].split("@")[0]
    assert password not in examined.printed + examined.said


async def test_doctor_says_what_is_wrong_with_database_and_provider():
    settings = {
        "DATABASE_URL": f"postgresql://me:hunter2@127.0.0.1:{free_port()}/name",
        "NOVITA_API_KEY": "sk_not_to_be_seen",
        "NOVITA_API_BASE_URL": f"http://127.0.0.1:{free_port()}",
    }

    examined = await run("doctor", env=settings)

    assert examined.code == 1
    wrong = [line.split()[1] for line in examined.printed.splitlines() if "✗" in line]
    assert wrong == ["database", "tables", "webhooks", "encryption", "provider", "identity"]
    assert "can't use the database at postgresql://me:***@127.0.0.1" in examined.printed
    assert "Traceback" not in examined.said
    for secret in ("hunter2", "sk_not_to_be_seen"):
        assert secret not in examined.printed + examined.said


async def test_doctor_says_when_the_signing_key_is_not_the_one_of_the_secrets(shared_up: Up):
    await GraphQLClient(shared_up.graphql_url, shared_up.token).ask("mutation { rotateWebhookSecret { secret } }")
    url = {"DATABASE_URL": str(shared_up.ready["databaseUrl"])}

    other = await run("doctor", env={**url, "WEBHOOK_SIGNING_KEY": "not the key of that server"})
    none = await run("doctor", env=url)
    same = await run("doctor", "--home", str(shared_up.home), env=url)

    assert (other.code, none.code, same.code) == (1, 1, 0), same.printed
    assert "WEBHOOK_SIGNING_KEY is another one: the secrets of 1 projects can't sign" in other.printed
    assert "WEBHOOK_SIGNING_KEY is not set: the secrets of 1 projects can't sign" in none.printed
    assert "the signing key fits all secrets" in same.printed
    assert "not the key of that server" not in other.printed + other.said


async def test_migrate_goes_up_and_down(new_database: Any):
    settings = {"DATABASE_URL": await new_database()}

    up = await run("migrate", env=settings)
    assert (up.code, up.printed) == (0, f"the database is at revision {known_head()}\n")

    down = await run("migrate", "--down", "--revision", "base", env=settings)
    assert (down.code, down.printed) == (0, "the database is at revision None\n")


def run_in_process(*args: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """For a command that only prints text; its exit code."""
    monkeypatch.setattr(sys, "argv", ["pilotlight", *args])
    with kept_log_config(), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_version_and_schema_are_what_is_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code = run_in_process("version", monkeypatch=monkeypatch)
    assert (code, capsys.readouterr().out.strip()) == (0, importlib.metadata.version("pilotlight"))

    code = run_in_process("schema", "check", monkeypatch=monkeypatch)
    expected = "the schema file is fresh, and every breaking change is in the changelog\n"
    assert (code, capsys.readouterr().out) == (0, expected)


async def test_the_simulator_alone_remembers_its_world(tmp_path: Path):
    state = tmp_path / "state"
    for made in (0, 1):
        dialect = ["--dialect", "first_page=0"] if made else []
        options = ["--port", "0", "--state-file", str(state), *dialect]
        async with pilotlight("simulate", *options, env={"SIMULATOR_DIALECT": "total=text"}) as simulator:
            await simulator.says("nothing real is created")
            url = next(word for word in simulator.said.split() if word.startswith("http://"))
            assert (await control(url, "state"))["instancesMade"] == made
            spoken = await control(url, "dialect")
            assert (spoken["first_page"], spoken["total"]) == (("0", "number") if made else ("both", "text"))
            if not made:
                async with NovitaClient(base_url=url, api_key=SecretStr("sk_x")) as novita:
                    product = next(each for each in await novita.products() if each.is_deployable)
                    await novita.create_instance(CreateInstance("kept", product.id, "nginx", rootfs_gb=60))
            assert await simulator.stop() == 0


async def test_the_simulator_plays_the_scenario_that_it_is_given(tmp_path: Path):
    day = tmp_path / "day.toml"
    day.write_text('[[step]]\nat = "2s"\ncall = "POST /dialect"\nbody = {first_page = "0"}\n')
    async with pilotlight("simulate", "--port", "0", "--speed", "100", "--scenario", str(day)) as simulator:
        await simulator.says("nothing real is created")
        url = next(word for word in simulator.said.split() if word.startswith("http://"))

        async def is_played() -> bool:
            return (await control(url, "dialect"))["first_page"] == "0"

        await until(is_played)
        assert await simulator.stop() == 0


def test_a_scenario_with_a_mistake_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    day = tmp_path / "day.toml"
    day.write_text('[[step]]\ncall = "POST /nothing"\n')

    code = run_in_process("simulate", "--port", "0", "--scenario", str(day), monkeypatch=monkeypatch)

    expected = f"the scenario is not right: {day}, step 1: there is no call 'POST /nothing'; see docs/simulator.md"
    assert (code, capsys.readouterr().err) == (1, f"pilotlight: {expected}\n")


def test_an_unknown_dialect_is_refused_at_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code = run_in_process("simulate", "--port", "0", "--dialect", "first_page=2", monkeypatch=monkeypatch)

    expected = "pilotlight: SIMULATOR_DIALECT is not right: first_page: Input should be 'both', '0' or '1'\n"
    assert (code, capsys.readouterr().err) == (1, expected)
