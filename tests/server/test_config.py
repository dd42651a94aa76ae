"""Settings: all problems reported at once, no secret shown, each setting used and documented."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from server.config import Settings, misspelled
from server.config.types import format_duration
from server.errors import StartupProblem

ROOT = Path(__file__).parents[2]
NAMES = sorted(Settings.model_fields)
ROW = re.compile(r"\| `?([A-Z_]+)`? \| `?([^|`]*)`? \| ([^|]+) \|")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name.upper(), raising=False)


def test_everything_has_a_default_that_runs_on_a_laptop():
    settings = Settings.from_env()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.novita_api_key is None
    assert settings.database_url is None
    assert settings.default_regions == ()
    assert settings.is_loopback


def test_all_problems_are_reported_at_once(monkeypatch: pytest.MonkeyPatch):
    for name, value in {
        "PORT": "http",
        "INSTANCE_MAX_WAIT": "soon",
        "JOB_LEASE": "1s",
        "NOVITA_API_BASE_URL": "https://api.novita.ai/v1",
        "DATABASE_URL": "mysql://user:hunter2@db/app",
        "LOG_LEVEL": "shout",
        "MAX_CONCURRENT_JOBS": "0",
        "ALLOWED_ORIGINS": "https://good.example,ftp://bad.example",
        "EVENT_RETENTION": "0",
    }.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(StartupProblem) as found:
        Settings.from_env()

    first, *lines = str(found.value).splitlines()
    assert first == "these settings are not right:"
    assert [line.split(":")[0].strip() for line in lines] == [
        "ALLOWED_ORIGINS",
        "DATABASE_URL",
        "EVENT_RETENTION",
        "INSTANCE_MAX_WAIT",
        "JOB_LEASE",
        "LOG_LEVEL",
        "MAX_CONCURRENT_JOBS",
        "NOVITA_API_BASE_URL",
        "PORT",
    ]
    assert "INSTANCE_MAX_WAIT: must be a duration such as 30, 30s, 10m or 24h (it is 'soon')" in str(found.value)
    assert "hunter2" not in str(found.value)


def test_a_secret_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NOVITA_API_KEY", "sk_very_secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:hunter2@localhost/app")
    settings = Settings.from_env()
    assert settings.novita_api_key == SecretStr("sk_very_secret")
    for shown in (str(settings), repr(settings), settings.model_dump_json()):
        assert "sk_very_secret" not in shown
        assert "hunter2" not in shown


@pytest.mark.parametrize("given", ["sk_key\n", " sk_key ", "sk_key\r\n", "\tsk_key"])
def test_the_key_is_used_without_the_space_around_it(monkeypatch: pytest.MonkeyPatch, given: str):
    monkeypatch.setenv("NOVITA_API_KEY", given)
    assert Settings.from_env().novita_api_key == SecretStr("sk_key")


@pytest.mark.parametrize("given", [" ", "\n", "sk one", "sk_\u00e9", "sk\x07"])
def test_what_is_no_key_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch, given: str):
    monkeypatch.setenv("NOVITA_API_KEY", given)
    with pytest.raises(StartupProblem) as found:
        Settings.from_env()
    problem = "  NOVITA_API_KEY: must be one word of ASCII characters"
    assert str(found.value) == f"these settings are not right:\n{problem}"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("30", 30), ("30s", 30), ("1.5", 1.5), ("250ms", 0.25), ("10m", 600), (" 24 h ", 86400), ("30d", 2_592_000)],
)
def test_a_duration_is_seconds_or_a_number_with_a_unit(monkeypatch: pytest.MonkeyPatch, given: str, seconds: float):
    monkeypatch.setenv("INSTANCE_MAX_WAIT", given)
    assert Settings.from_env().instance_max_wait == timedelta(seconds=seconds)


@pytest.mark.parametrize("given", ["-1", "0", "1w", "ten", "1h30m", "1e3", "nan"])
def test_what_is_no_duration_is_refused(monkeypatch: pytest.MonkeyPatch, given: str):
    monkeypatch.setenv("INSTANCE_MAX_WAIT", given)
    with pytest.raises(StartupProblem, match="INSTANCE_MAX_WAIT"):
        Settings.from_env()


@pytest.mark.parametrize("given", ["30d", "23h", "10m", "90s", "60s", "1s", "100ms", "1500ms"])
def test_a_duration_is_shown_as_it_can_be_written(given: str):
    value = Settings(instance_max_wait=given).instance_max_wait  # pyright: ignore[reportArgumentType]
    assert format_duration(value) == given


def test_a_variable_that_is_nearly_a_setting_is_found_with_that_setting():
    variables = ["JOB_LEESE", "NOVITA_APIKEY", "JOB_LEASE", "PATH", "HOSTNAME", "PORTS", "NOVITA_KEYRING", "LANG"]
    assert misspelled(variables) == {"JOB_LEESE": "JOB_LEASE", "NOVITA_APIKEY": "NOVITA_API_KEY"}


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch):
    for name in NAMES:
        monkeypatch.setenv(name.upper(), "")
    assert Settings.from_env() == Settings()


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEFAULT_REGIONS", "US-CA-06, EU-GB-01 ,")
    monkeypatch.setenv("ALLOWED_ORIGINS", "https://a.example/,http://b.example:3000")
    settings = Settings.from_env()
    assert settings.default_regions == ("US-CA-06", "EU-GB-01")
    assert settings.allowed_origins == ("https://a.example", "http://b.example:3000")


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_which_addresses_only_this_machine_can_reach(host: str, is_loopback: bool):
    assert Settings(host=host).is_loopback is is_loopback


def test_what_is_given_on_the_command_line_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORT", "9000")
    assert Settings.from_env(port=0).port == 0


def code() -> str:
    files = [*(ROOT / "server").rglob("*.py"), *(ROOT / "schema").rglob("*.py")]
    return "\n".join(file.read_text() for file in files if file.parent != ROOT / "server" / "config")


def test_every_setting_is_read_somewhere():
    text = code()
    unread = [name for name in NAMES if not re.search(rf"settings\.{name}\b", text)]
    assert unread == []


def documented() -> dict[str, tuple[str, str]]:
    rows = ROW.findall((ROOT / "docs" / "operating.md").read_text())
    return {name: (default, meaning) for name, default, meaning in rows if name.lower() in NAMES}


def shown(value: Any) -> str:
    """A default as people write it."""
    if value in (None, ()):
        return "none"
    if isinstance(value, tuple):
        return ",".join(value)
    if not isinstance(value, timedelta):
        return str(value)
    seconds = value.total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        # Up to a minute in seconds: 60s reads as a count, 1m as a rounding.
        if seconds > 60 and seconds % length == 0 and seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def test_every_setting_is_documented_with_its_default_and_its_meaning():
    wanted = {name.upper(): (shown(field.default), field.description) for name, field in Settings.model_fields.items()}
    assert documented() == wanted
