"""serverInfo shows callers what they may know of the server, and nothing else."""

import re

from server.auth.tokens import new_secret
from server.config import Settings
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api
from tests.support.api_server import Server, serving
from tests.support.world import LIST

TEXT = re.compile(r"\bstr\b|IPv|Path")
DOCUMENT = """{ serverInfo {
  version startedAt uptime workers
  provider { host isSimulator breaker retryAt callsPerMinute suspended }
  database { kind version }
  eventLog { head hasSequencer isFollowed }
  limits { pageSize nodes bulkSize filterValues awaitTimeout eventRetention socketsPerToken }
  features { signsWebhooks sharesCaches privateWebhooks }
  settings { name value } } }"""


async def test_it_tells_how_the_server_is_doing(api: Api):
    info = (await api.ask(DOCUMENT)).data["serverInfo"]

    assert info["provider"] == {
        "host": "127.0.0.1",
        "isSimulator": True,
        "breaker": "CLOSED",
        "retryAt": None,
        "callsPerMinute": None,  # without a limit
        "suspended": [],
    }
    assert info["database"]["kind"] == "EMBEDDED"
    assert info["uptime"] > 0
    assert info["workers"] == 0
    assert (info["eventLog"]["hasSequencer"], info["eventLog"]["isFollowed"]) == (True, True)
    assert info["limits"]["awaitTimeout"] == 60
    assert info["features"] == {"signsWebhooks": True, "sharesCaches": False, "privateWebhooks": True}


async def test_one_can_watch_from_the_head_it_names(api: Api):
    head = (await api.ask(DOCUMENT)).data["serverInfo"]["eventLog"]["head"]
    instance = (await api.create())["instance"]
    document = "subscription ($after: String) { instanceEvents(after: $after) { instanceId } }"
    async with api.server.watching(document, token=api.token, variables={"after": head}) as socket:
        assert (await socket.next("instanceEvents"))["instanceId"] == instance["id"]


async def test_no_secret_and_no_address_is_among_the_settings(api: Api):
    shown = {each["name"]: each["value"] for each in (await api.ask(DOCUMENT)).data["serverInfo"]["settings"]}

    assert (shown["HEALTH_CHECK_DELAY"], shown["EVENT_RETENTION"]) == ("20ms", "30d")
    assert shown["WORKER_PORT"] == ""
    assert shown["DEFAULT_REGIONS"] == "AS-SGP-02,CN-HK-01,AS-IN-01"
    secret = {name.upper() for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)}
    assert len(secret) >= 4
    assert shown.keys().isdisjoint(secret | {"HOST", "PORT", "PILOTLIGHT_HOME", "NOVITA_API_BASE_URL"})
    # A setting that is any text may be an address, or name what belongs to others.
    written = {name.upper() for name, field in Settings.model_fields.items() if TEXT.search(str(field.annotation))}
    assert shown.keys() & written == {
        "DEFAULT_REGIONS",
        "OIDC_GROUPS_CLAIM",
        "OIDC_SCOPES",
        "OTEL_SERVICE_NAME",
        "SIMULATOR_DIALECT",
    }
    assert "a key that only tests sign with" not in str(shown)
    assert new_secret()[:3] not in str(shown)


async def test_a_provider_that_is_not_called_any_more_is_said(api: Api):
    breaker = api.server.runtime.novita.breaker
    try:
        for _ in range(api.server.runtime.settings.breaker_threshold):
            with breaker.enter("GET /test") as permit:
                permit.failed()
        provider = (await api.ask(DOCUMENT)).data["serverInfo"]["provider"]
    finally:
        breaker._routes.clear()

    assert (provider["breaker"], provider["suspended"]) == ("OPEN", ["GET /test"])
    assert provider["retryAt"] is not None


async def test_the_rate_of_calls_follows_the_providers_refusals(api: Api):
    simulator = api.server.simulator
    async with serving(api.server.runtime.database_url, simulator, novita_rate_limit=6000) as server:
        shown = [await _calls_per_minute(server, api.token)]
        simulator.world.faults.set([Fault(FaultKind.RATE_LIMIT, (LIST,), times=1, retry_after="0")])
        await server.runtime.novita.instances(page=1, page_size=1)
        shown.append(await _calls_per_minute(server, api.token))
        for _ in range(5):
            await server.runtime.novita.instances(page=1, page_size=1)
        shown.append(await _calls_per_minute(server, api.token))

    assert shown[0] == 6000
    assert shown[1] == 4200
    assert 4200 < shown[2] <= 4560


async def _calls_per_minute(server: Server, token: str) -> int:
    """Of serverInfo, which has to agree with the metric."""
    info = (await server.ask(DOCUMENT, token=token)).data["serverInfo"]
    async with server.http.get(f"http://{server.address}/metrics") as response:
        metric = f"pilotlight_provider_calls_per_minute {float(info['provider']['callsPerMinute'])}"
        assert metric in (await response.text()).splitlines()
    return info["provider"]["callsPerMinute"]
