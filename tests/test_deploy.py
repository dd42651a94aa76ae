"""The Dockerfile, the compose file and the manifests are consistent; `make check` checks their syntax."""

import json
import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
from ruamel.yaml import YAML

from server.config import Settings
from tests.support.processes import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
SETTINGS = {name.upper() for name in Settings.model_fields}
MANIFESTS = [
    part
    for file in sorted((ROOT / "deploy/kubernetes/base").glob("*.yaml"))
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
    assert Settings(**{name.lower(): value for name, value in given.items() if value}).database_url is not None


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


def test_every_deployment_has_a_place_for_each_setting_that_it_has_to_choose():
    section = (ROOT / "docs/operating.md").read_text().split("### To choose for each deployment")[1].split("\n## ")[0]
    chosen = {name for row in re.findall(r"(?m)^\| (`.*?) \|", section) for name in re.findall(r"`(\w+)`", row)}
    assert {"OIDC_ISSUER", "ENCRYPTION_KEY", "DEFAULT_MAX_DURATION"} <= chosen <= SETTINGS

    [config] = [part for part in manifests("ConfigMap") if part["metadata"]["name"] == "pilotlight"]
    [secret] = manifests("Secret")
    vm = (ROOT / "deploy/vm/pilotlight.env").read_text()
    given = {
        "compose": OURS["api"]["environment"].keys() & OURS["worker"]["environment"].keys(),
        "kubernetes": config["data"].keys() | secret["stringData"].keys(),
        "vm": set(re.findall(r"(?m)^(?:# )?([A-Z_]+)=", vm)),
    }
    assert {where: chosen - names for where, names in given.items()} == {where: set() for where in given}
    secrets = {name for name in secret["stringData"] if name != "DATABASE_URL"}
    assert secrets == {name for name in chosen if re.search("KEY|SECRET", name)}


def test_compose_with_nothing_in_its_environment_has_valid_settings():
    for service in OURS.values():
        given = {
            name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)) for name, value in service["environment"].items()
        }
        settings = Settings(**{name.lower(): value for name, value in given.items() if value})
        assert (settings.oidc_issuer, settings.encryption_key) == (None, None)


def rendered(overlay: str) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    folder = ROOT / "deploy/kubernetes/overlays" / overlay
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return list(YAML(typ="safe").load_all(done.stdout))


def settings_of(parts: list[dict[str, Any]]) -> dict[str, str]:
    data = [part for part in parts if part["metadata"]["name"] == "pilotlight"]
    return {
        name: value for part in data for name, value in {**part.get("data", {}), **part.get("stringData", {})}.items()
    }


def test_the_production_overlay_has_the_login_and_no_secrets():
    parts = rendered("production")

    assert [part for part in parts if part["kind"] == "Secret"] == []
    given = settings_of(parts)
    settings = Settings(**{name.lower(): value for name, value in given.items() if value})
    assert (settings.public_url, len(settings.group_roles)) == ("https://gpu.example.com", 2)
    [ingress] = [part["spec"] for part in parts if part["kind"] == "Ingress"]
    assert [ingress["rules"][0]["host"], *ingress["tls"][0]["hosts"]] == ["gpu.example.com"] * 2
    pods = [part["spec"]["template"]["spec"] for part in parts if part["kind"] in ("Deployment", "Job")]
    images = {container["image"] for pod in pods for container in pod["containers"]}
    assert len(images) == 1
    assert re.fullmatch(r"registry\.example\.com/pilotlight:[\d.]+", images.pop())


def test_the_simulator_overlay_contains_everything_that_it_names():
    parts = rendered("simulator")
    given = settings_of(parts)
    settings = Settings(**{name.lower(): value for name, value in given.items() if value})
    services = {part["metadata"]["name"]: part["spec"] for part in parts if part["kind"] == "Service"}
    workloads = [part for part in parts if part["kind"] in ("Deployment", "StatefulSet", "Job")]
    pods = {part["metadata"]["name"]: part["spec"]["template"] for part in workloads}
    claims = {part["metadata"]["name"] for part in parts if part["kind"] == "PersistentVolumeClaim"}

    assert settings.redis_url is None
    assert str(settings.novita_api_base_url) == "http://pilotlight-simulator:8001"
    assert "@postgresql:5432/" in given["DATABASE_URL"]
    assert {"pilotlight-simulator", "postgresql"} <= services.keys()
    for name, service in services.items():
        [port] = service["ports"]
        chosen = [pod for pod in pods.values() if service["selector"].items() <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1, name
        offered = {each["name"] for container in chosen[0]["spec"]["containers"] for each in container.get("ports", [])}
        assert port["targetPort"] in offered
    worker = pods["pilotlight-worker"]["spec"]
    assert {container["name"] for container in worker["containers"]} == {"simulator", "worker"}
    mounted = [volume["persistentVolumeClaim"]["claimName"] for volume in worker["volumes"] if "emptyDir" not in volume]
    assert {*mounted} == claims
    assert {part["kind"] for part in parts} & {"Ingress", "HorizontalPodAutoscaler", "NetworkPolicy"} == set()
    counts = {part["metadata"]["name"]: part["spec"].get("replicas") for part in workloads}
    assert (counts["pilotlight-api"], counts["pilotlight-worker"]) == (2, 1)
