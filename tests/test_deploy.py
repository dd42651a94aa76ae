"""The Dockerfile, the compose file and the manifests are consistent; `make check` checks their syntax."""

import json
import re
import tomllib
from typing import Any

from ruamel.yaml import YAML

from server.config import Settings
from tests.support.processes import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SETTINGS = {name.upper() for name in Settings.model_fields}
MANIFESTS = [
    part
    for file in sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
    for part in YAML(typ="safe").load_all(file)
    if part["kind"] != "Kustomization"
]
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
    source = (ROOT / "server/cli/main.py").read_text()
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


def test_no_process_is_killed_before_its_shutdown_timeout():
    shortest = min(seconds(service["stop_grace_period"]) for service in OURS.values())
    longest = max(seconds(service["environment"]["DRAIN_TIME"]) for service in OURS.values())

    assert shortest > longest + Settings().shutdown_timeout.total_seconds()


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def manifests(kind: str) -> list[dict[str, Any]]:
    return [part for part in MANIFESTS if part["kind"] == kind]


def pods() -> list[dict[str, Any]]:
    return [part["spec"]["template"]["spec"] for part in [*manifests("Deployment"), *manifests("Job")]]


def test_every_setting_in_the_manifests_is_one_of_ours_and_valid():
    [config] = [part for part in manifests("ConfigMap") if part["metadata"]["name"] == "pilotlight"]
    [secret] = manifests("Secret")
    given = {**config["data"], **secret["stringData"]}

    assert given.keys() <= SETTINGS
    assert Settings(**{name.lower(): value for name, value in given.items()}).database_url is not None


def test_pods_have_no_more_rights_than_they_need():
    [user] = instructions("USER")
    for pod in pods():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == int(user)
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_outage_of_the_database_takes_pods_out_and_restarts_none():
    for deployment in manifests("Deployment"):
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
        assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def test_pods_are_given_the_time_that_a_stop_takes():
    [config] = [part["data"] for part in manifests("ConfigMap") if part["metadata"]["name"] == "pilotlight"]
    for deployment in manifests("Deployment"):
        given = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert given > seconds(config["DRAIN_TIME"]) + seconds(config["SHUTDOWN_TIMEOUT"])


def test_every_deployment_has_a_budget_and_an_autoscaler_of_two_or_more():
    names = {part["metadata"]["name"] for part in manifests("Deployment")}
    labels = {part["metadata"]["name"]: part["spec"]["selector"]["matchLabels"] for part in manifests("Deployment")}

    for budget in manifests("PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"] == labels[budget["metadata"]["name"]]
    scaled = {part["spec"]["scaleTargetRef"]["name"]: part["spec"] for part in manifests("HorizontalPodAutoscaler")}
    assert names == scaled.keys() == {part["metadata"]["name"] for part in manifests("PodDisruptionBudget")}
    assert all(spec["minReplicas"] >= 2 for spec in scaled.values())
    [metric] = scaled["pilotlight-worker"]["metrics"]
    assert f"`{metric['external']['metric']['name']}`" in (ROOT / "docs/metrics.md").read_text()
