"""Dockerfile and docker-compose.yml, as far as they can be judged without Docker. Their syntax is `make check`'s."""

import json
import re
import tomllib

from ruamel.yaml import YAML

from server.config import Settings
from tests.processes import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SETTINGS = {name.upper() for name in Settings.model_fields}
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "pilotlight"}


def instructions(word: str) -> list[str]:
    """The arguments of every such instruction of the stage that is run."""
    last_stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    return re.findall(rf"^{word} (.*)$", last_stage, re.MULTILINE)


def test_the_image_does_not_run_as_root():
    [user] = instructions("USER")

    assert user.isdigit()
    assert int(user) > 0
    assert f"--uid {user} " in DOCKERFILE


def test_the_image_tells_whether_it_is_alive():
    [check] = instructions("HEALTHCHECK")

    command = json.loads(check.split("CMD ")[1])
    assert command[0] == "python"
    assert "/healthz" in command[-1]
    compile(command[-1], "HEALTHCHECK", "exec")


def test_every_setting_that_the_image_makes_is_one_of_ours():
    [made] = instructions("ENV")
    names = set(re.findall(r"(\w+)=", made)) - {"PATH", "PYTHONUNBUFFERED"}

    assert names
    assert names <= SETTINGS


def test_the_image_is_built_by_what_the_makefile_uses():
    version = re.search(r"UV_VERSION := (\S+)", (ROOT / "Makefile").read_text())

    assert version is not None
    assert f"uv=={version[1]} " in DOCKERFILE


def test_everything_that_the_package_is_made_of_is_copied():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]

    for part in [*wheel["packages"], *wheel.get("force-include", {})]:
        assert re.search(rf"^COPY .*\b{re.escape(part)}\b", DOCKERFILE, re.MULTILINE), part


def test_compose_runs_all_parts_by_commands_that_exist():
    parts = {"front", "postgres", "redis", "migrate", "token", "api", "worker", "simulator"}
    assert parts == COMPOSE["services"].keys()
    source = (ROOT / "server/cli.py").read_text()
    commands = {service["command"][0] for service in OURS.values()}
    assert commands == {"migrate", "token", "serve", "worker", "simulate"}
    for service in OURS.values():
        for option in [word for word in service["command"] if word.startswith("--")]:
            assert option.removeprefix("--").replace("-", "_") in source


def test_every_setting_in_compose_is_one_of_ours():
    for name, service in OURS.items():
        assert service["environment"].keys() <= SETTINGS, name


def test_nothing_in_compose_starts_before_what_it_needs():
    waits = {name: service.get("depends_on", {}) for name, service in COMPOSE["services"].items()}

    assert waits["migrate"]["postgres"]["condition"] == "service_healthy"
    assert waits["token"]["migrate"]["condition"] == "service_completed_successfully"
    assert waits["api"]["token"]["condition"] == "service_completed_successfully"
    assert waits["worker"]["migrate"]["condition"] == "service_completed_successfully"
    assert waits["front"]["api"]["condition"] == "service_healthy"


def test_compose_runs_two_of_each_behind_one_port():
    services = COMPOSE["services"]

    assert [services[name]["deploy"]["replicas"] for name in ("api", "worker")] == [2, 2]
    assert [name for name, service in services.items() if "ports" in service] == ["front"]
    [mounted] = services["front"]["volumes"]
    assert (ROOT / mounted.split(":")[0]).is_file()


def test_the_front_gets_everything_its_configuration_asks_for():
    asked = set(re.findall(r"\$\{(\w+)\}", (ROOT / "deploy/front/haproxy.cfg").read_text()))

    assert asked == COMPOSE["services"]["front"]["environment"].keys()


def test_everything_in_compose_that_keeps_running_tells_whether_it_is_alive():
    """The image has a check of its own; workers share the simulator's network, so they can't all have one port."""
    for name, service in COMPOSE["services"].items():
        has_check = "test" in service.get("healthcheck", {}) or name == "api"
        assert has_check or name in ("migrate", "token", "worker"), name


def test_nobody_is_killed_before_his_time_to_stop_is_over():
    shortest = min(int(service["stop_grace_period"].removesuffix("s")) for service in OURS.values())

    assert shortest > Settings().shutdown_timeout.total_seconds()
