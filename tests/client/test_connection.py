"""Which server the client talks to when none is given."""

import json
import tomllib
from pathlib import Path

import pytest
from pilotlight_client import AsyncPilotlight, NotConfigured, Pilotlight, Unreachable
from pilotlight_client.connection import config_file, find_server

from tests.support.processes import ROOT, Up


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PILOTLIGHT_URL", "PILOTLIGHT_TOKEN", "PILOTLIGHT_CONTEXT", "PILOTLIGHT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTLIGHT_URL", "http://127.0.0.1:8000/")
    monkeypatch.setenv("PILOTLIGHT_TOKEN", "pl_env")
    assert (find_server().url, find_server().token) == ("http://127.0.0.1:8000/graphql", "pl_env")
    assert "pl_env" not in repr(find_server())


def test_a_url_without_a_token_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTLIGHT_URL", "http://127.0.0.1:8000")
    with pytest.raises(NotConfigured, match="PILOTLIGHT_TOKEN"):
        find_server()


def test_then_the_current_context(monkeypatch: pytest.MonkeyPatch):
    contexts = {name: {"url": f"http://{name}.test", "token": f"pl_{name}"} for name in ("one", "two")}
    config_file().parent.mkdir(parents=True)
    config_file().write_text(json.dumps({"current": "one", "contexts": contexts}))
    assert find_server().url == "http://one.test/graphql"
    monkeypatch.setenv("PILOTLIGHT_CONTEXT", "two")
    assert find_server().token == "pl_two"
    monkeypatch.setenv("PILOTLIGHT_CONTEXT", "three")
    with pytest.raises(NotConfigured, match="three"):
        find_server()


def test_then_the_server_of_the_folder_or_one_above(empty_folder: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(NotConfigured, match="pilotlight up"):
        find_server()
    (empty_folder / ".pilotlight").mkdir()
    local = {"graphqlUrl": "http://127.0.0.1:9/graphql", "token": "pl_local"}
    (empty_folder / ".pilotlight" / "server.json").write_text(json.dumps(local))
    (empty_folder / "sub").mkdir()
    monkeypatch.chdir(empty_folder / "sub")
    assert find_server().token == "pl_local"


def test_a_file_that_names_another_machine_gets_no_token(empty_folder: Path, monkeypatch: pytest.MonkeyPatch):
    (empty_folder / ".pilotlight").mkdir()
    elsewhere = {"graphqlUrl": "https://elsewhere.test/graphql", "token": "pl_x"}
    (empty_folder / ".pilotlight" / "server.json").write_text(json.dumps(elsewhere))
    monkeypatch.setenv("PILOTLIGHT_TOKEN", "pl_mine")
    with pytest.raises(NotConfigured):
        find_server()


def test_a_running_server_is_found_by_its_home(running: Up, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTLIGHT_HOME", str(running.home))
    assert (running.home / "server.json").stat().st_mode & 0o777 == 0o600
    with Pilotlight() as client:
        assert list(client.list(name_starts_with="there is none")) == []


async def test_a_password_in_netrc_is_not_used(running: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "netrc"
    file.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(file))
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        assert [each async for each in client.list(name_starts_with="there is none")] == []


async def test_the_proxy_of_the_environment_is_used_unless_the_host_is_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    for left_out, reason in (("", "127.0.0.1:1 "), ("127.0.0.1", "127.0.0.1:2 ")):
        monkeypatch.setenv("no_proxy", left_out)
        async with AsyncPilotlight("http://127.0.0.1:2", "pl_x", retry_for=0) as client:
            with pytest.raises(Unreachable, match=reason):
                await client.get("web")


def test_the_package_needs_little():
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 4
    assert (project["name"], project["requires-python"]) == ("pilotlight-client", ">=3.10")
