"""createAlert, alerts, deleteAlert."""

from datetime import timedelta
from typing import Any

from server.clock import now
from server.enums import Role
from server.market import tape
from server.market.matches import fire_alerts
from server.market.regions import record_regions
from server.market.segments import Segment
from tests.support.api import Api
from tests.support.waiting import until

SEGMENT = Segment("AS-SGP-02", "spot", 1, "as-sgp-2")
FIELDS = """id productNames regions billingModes gpuCount priceAtMost { amountMicros } heldFor cooldown expiresAt
    webhookUrl lastFiredAt"""
CREATE = f"""mutation ($input: CreateAlertInput!) {{ createAlert(input: $input) {{
    alert {{ {FIELDS} }} replayed errors {{ code path }} }} }}"""
DELETE = "mutation ($id: ID!) { deleteAlert(input: {id: $id}) { deletedId errors { code path } } }"
ALERTS = "{ alerts { nodes { id } totalCount } }"
EVENTS = '{ projectEvents(filter: {types: ["market.alert"]}) { nodes { type alert { id } data { key value } } } }'
WANTED: dict[str, Any] = {"productNames": ["RTX 4090 24GB"], "regions": ["AS-SGP-02"], "billingModes": ["SPOT"]}


async def create(api: Api, **fields: Any) -> dict[str, Any]:
    return (await api.ask(CREATE, input={**WANTED, **fields})).data["createAlert"]


async def test_alert_has_what_was_given_and_defaults_and_is_a_node(api: Api):
    payload = await create(api, priceAtMost={"amountMicros": 250_000}, webhookUrl="http://127.0.0.1:9/hook")

    alert = payload["alert"]
    assert (payload["errors"], payload["replayed"]) == ([], False)
    assert alert == {
        **WANTED,
        "id": alert["id"],
        "gpuCount": 1,
        "priceAtMost": {"amountMicros": 250_000},
        "heldFor": 30,
        "cooldown": 3600,
        "expiresAt": None,
        "webhookUrl": "http://127.0.0.1:9/hook",
        "lastFiredAt": None,
    }
    node = await api.ask(
        f"query ($id: ID!) {{ node(id: $id) {{ ... on MarketAlert {{ {FIELDS} }} }} }}", id=alert["id"]
    )
    assert node.data["node"] == alert


async def test_same_key_creates_one_alert_also_after_its_end(api: Api):
    given = {"idempotencyKey": "once", "expiresAt": (now() + timedelta(hours=1)).isoformat()}
    first = await create(api, **given)
    await api.world.execute("UPDATE market_alert SET expires_at = now() - interval '1 hour'")

    again = await create(api, **given)

    assert (again["replayed"], again["alert"]["id"]) == (True, first["alert"]["id"])
    assert (await api.ask(ALERTS)).data["alerts"] == {"nodes": [{"id": first["alert"]["id"]}], "totalCount": 1}


async def test_bad_fields_are_refused_with_their_paths_and_nothing_is_written(api: Api):
    payload = await create(
        api,
        regions=[],
        gpuCount=9,
        heldFor=86_401,
        priceAtMost={"amountMicros": 1_000_000, "currency": "EUR"},
        webhookUrl="ftp://127.0.0.1",
    )

    assert payload["alert"] is None
    assert sorted((each["code"], each["path"][-1]) for each in payload["errors"]) == [
        ("INVALID_ALERT", "currency"),
        ("INVALID_ALERT", "gpuCount"),
        ("INVALID_ALERT", "heldFor"),
        ("INVALID_ALERT", "regions"),
        ("INVALID_WEBHOOK_URL", "webhookUrl"),
    ]
    assert (await api.ask(ALERTS)).data["alerts"]["totalCount"] == 0


async def test_deleted_alert_is_gone_and_one_of_another_project_is_invisible(api: Api):
    alert_id = (await create(api))["alert"]["id"]
    token, _ = await api.world.new_token("another", Role.ADMIN)

    foreign = await api.server.ask(DELETE, token=token, variables={"id": alert_id})
    assert foreign.data["deleteAlert"]["errors"] == [{"code": "ALERT_NOT_FOUND", "path": ["input", "id"]}]
    assert (await api.server.ask(ALERTS, token=token)).data["alerts"] == {"nodes": [], "totalCount": 0}

    assert (await api.ask(DELETE, id=alert_id)).data["deleteAlert"] == {"deletedId": alert_id, "errors": []}
    assert (await api.ask(ALERTS)).data["alerts"]["totalCount"] == 0
    assert (await api.ask(DELETE, id=alert_id)).data["deleteAlert"]["errors"][0]["code"] == "ALERT_NOT_FOUND"


async def test_fired_alert_is_an_event_of_the_project(api: Api):
    alert_id = (await create(api, heldFor=0))["alert"]["id"]
    products = await api.world.novita.products(cluster_id=SEGMENT.cluster_id, billing="spot", gpu_count=1)
    at = await api.world.value("SELECT clock_timestamp()")
    async with api.world.database.write() as session:
        await record_regions(session, await api.world.novita.clusters(), at=at)
        await tape.record_poll(session, SEGMENT, products, at=at)
        await fire_alerts(session, SEGMENT, at=at)

    async def events() -> list[dict[str, Any]]:
        return (await api.ask(EVENTS)).data["projectEvents"]["nodes"]

    await until(events)
    (event,) = await events()
    assert (event["type"], event["alert"]) == ("market.alert", {"id": alert_id})
    values = {each["key"]: each["value"] for each in event["data"]}
    assert values["productName"] == "RTX 4090 24GB"
    assert values["pricePerHourMicros"] == "195000"
