"""Dashboards and alerts use metrics that exist, and every alert has a runbook entry."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from server.config import Settings

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
ALERTS = [rule for group in YAML(typ="safe").load(ROOT / "deploy" / "alerts.yml")["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SHOWN = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
WATCHED = [(rule["alert"], rule["expr"]) for rule in ALERTS]

METRIC = re.compile(r"\b((?:pilotlight|process|python)_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
# Prometheus adds these two itself; buckets have the third.
ADDED = {"job", "instance", "le"}


def documented() -> dict[str, set[str]]:
    """Every name that a query may use, with its labels."""
    names: dict[str, set[str]] = {}
    for name, kind, labels in ROW.findall((ROOT / "docs" / "metrics.md").read_text()):
        found = set(re.findall(r"`(\w+)`", labels)) | ADDED
        for end in ("_bucket", "_count", "_sum") if kind == "histogram" else ("",):
            names[name + end] = found
    return names


NAMES = documented()


@pytest.mark.parametrize(("where", "query"), [*SHOWN, *WATCHED])
def test_a_query_uses_metrics_and_labels_that_exist(where: str, query: str):
    used = METRIC.findall(query)
    assert used, where
    labels: set[str] = set()
    for name, selected in used:
        assert name in NAMES, f"{where}: {name}"
        assert set(re.findall(r"(\w+)\s*=", selected)) <= NAMES[name], f"{where}: {selected}"
        labels |= NAMES[name]
    for group in GROUPED.findall(query):
        assert {each.strip() for each in group.split(",")} <= labels, f"{where}: {group}"
    for opening, closing in ("()", "{}", "[]"):
        assert query.count(opening) == query.count(closing), query


@pytest.mark.parametrize(("where", "query"), [*SHOWN, *WATCHED])
def test_a_counter_is_only_used_as_a_rate_or_increase(where: str, query: str):
    """Since it begins anew with every process."""
    for name in re.findall(r"\b(pilotlight_\w+_(?:total|bucket|count|sum)|process_cpu_seconds_total)\b", query):
        assert re.search(rf"(?:rate|increase)\({name}\b", query), f"{where}: {name}"


def test_everything_that_is_ours_is_on_the_dashboard():
    shown = {name for _, query in SHOWN for name, _ in METRIC.findall(query)}
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in shown}
    ours = {re.sub("_(bucket|count|sum)$", "", name) for name in NAMES if name.startswith("pilotlight_")}
    assert ours - families == set()


def test_the_dashboard_is_one_that_grafana_takes():
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert variables == {"source", "job"}
    for panel in PANELS:
        assert panel["title"], panel["id"]
        assert panel["description"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert [each["refId"] for each in panel["targets"]] == list("ABCDEFGH")[: len(panel["targets"])]


def test_no_two_panels_lie_on_each_other():
    def covers(one: dict[str, Any], other: dict[str, Any]) -> bool:
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        return not beside and not above

    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert [pair for pair in combinations(places, 2) if covers(*pair)] == []
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_each_alert_says_what_is_wrong_why_it_matters_and_what_to_do():
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "why", "action"}, rule["alert"]
        assert all(str(words).endswith(".") for words in rule["annotations"].values()), rule["alert"]


def test_operators_find_every_alert_in_the_documentation_and_no_other():
    section = (ROOT / "docs" / "operating.md").read_text().split("## When an alert fires")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == {rule["alert"] for rule in ALERTS}


COMPOSE = YAML(typ="safe").load(ROOT / "deploy" / "observe" / "compose.yml")["services"]


def test_what_the_observers_mount_is_there():
    mounted = [volume.split(":")[0] for service in COMPOSE.values() for volume in service.get("volumes", [])]
    files = [ROOT / each for each in mounted if not each.startswith("$")]
    assert len(files) == 5
    assert [each for each in files if not each.is_file()] == []


def test_the_observers_give_our_processes_settings_that_we_have():
    base = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
    for name in ("api", "worker"):
        assert name in base
        assert {each.lower() for each in COMPOSE[name]["environment"]} <= set(Settings.model_fields)
    scraped = YAML(typ="safe").load(ROOT / "deploy" / "observe" / "prometheus.yml")["scrape_configs"][0]
    ports = {each["port"] for each in scraped["dns_sd_configs"]}
    assert str(Settings().port) in map(str, ports)
    assert COMPOSE["worker"]["environment"]["WORKER_PORT"] in map(str, ports)
