"""node and nodes: anything by its id, if the caller may see it."""

from typing import Any

from schema import ids
from schema.root import schema
from server.enums import InstanceStatus
from server.events.event import EventType
from server.events.outbox import append_project_event
from server.queue.kinds import CleanUp
from server.simulator.faults import Fault, FaultKind
from server.webhooks import deliveries
from tests.support.api import Api
from tests.support.seed import make_provider_job, put_alert, put_budget, put_quota, put_volume, put_webhook
from tests.support.waiting import until

LISTED = """{
  events { nodes { __typename id cursor type status previousStatus occurredAt } }
  jobs { nodes { __typename id kind } }
  cpu: products(filter: {kind: CPU}) { __typename id novitaId name region { code } pricePerGpuHour { amountMicros } }
  products { __typename id novitaId name region { code } pricePerGpuHour { amountMicros } }
  registryAuths { __typename id novitaId name username }
  templates { nodes { __typename id novitaId name image registryAuthId } }
}"""
# The provider's: the same for all projects.
SHARED = ("Product", "RegistryAuth", "Template")
DOCUMENT = "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }"


OBJECTS = """
    mutation {
      createNetwork(input: {name: "node", region: "AS-SGP-02"}) { network { id } }
      prewarmImage(input: {image: "node", region: "AS-SGP-02", productNames: ["RTX 4090 24GB"]}) { prewarm { id } }
    }
"""


async def everything(api: Api) -> dict[str, str]:
    """One of each, by type."""
    made = await api.create()
    async with api.world.database.write() as session:
        delivery = await deliveries.insert_test_delivery(session, api.caller.project_id, "http://127.0.0.1:9/hook")
        webhook = await put_webhook(session, api.caller, "http://127.0.0.1:9/hook")
        await append_project_event(session, EventType.BALANCE_LOW, project_id=api.caller.project_id, values={})
    await until(lambda: _is_sequenced(api))
    listed = (await api.ask(LISTED)).data
    objects = (await api.ask(OBJECTS)).data
    await api.world.put(InstanceStatus.EXITED, novita_id="node-machine")
    return {
        "Instance": made["instance"]["id"],
        "InstanceEvent": listed["events"]["nodes"][0]["id"],
        "Job": listed["jobs"]["nodes"][0]["id"],
        "Network": objects["createNetwork"]["network"]["id"],
        "Operation": made["operation"]["id"],
        "Prewarm": objects["prewarmImage"]["prewarm"]["id"],
        "Product": listed["products"][0]["id"],
        "ProviderJob": make_provider_job(api.world, "node-machine"),
        "ProjectEvent": (await api.ask("{ projectEvents { nodes { id } } }")).data["projectEvents"]["nodes"][0]["id"],
        "ProjectWebhook": ids.format_id(ids.WEBHOOK, webhook.id),
        "Project": ids.format_id(ids.PROJECT, api.caller.project_id),
        "RegistryAuth": listed["registryAuths"][0]["id"],
        "Template": listed["templates"]["nodes"][0]["id"],
        "Token": ids.format_id(ids.TOKEN, api.caller.token_id),
        "Budget": ids.format_id(ids.BUDGET, await put_budget(api.world, api.caller)),
        "Quota": ids.format_id(ids.QUOTA, await put_quota(api.world, api.caller)),
        "MarketAlert": ids.format_id(ids.ALERT, await put_alert(api.world, api.caller)),
        "Volume": ids.format_id(ids.VOLUME, (await put_volume(api.world)).id),
        "WebhookDelivery": ids.format_id(ids.DELIVERY, delivery.id),
    }


async def _is_sequenced(api: Api) -> bool:
    return not await api.world.value("SELECT count(*) FROM outbox")


async def ask(api: Api, *wanted: str, token: str | None = None) -> list[Any]:
    return (await api.ask(DOCUMENT, token=token, ids=list(wanted))).data["nodes"]


async def test_everything_that_is_a_node_is_found_by_its_id(api: Api):
    known = await everything(api)

    assert set(known) == {
        each.name for each in schema._schema.get_implementations(schema._schema.type_map["Node"]).objects
    }
    assert await ask(api, *known.values()) == [{"__typename": name, "id": id} for name, id in known.items()]
    for name, id in known.items():
        one = (await api.ask("query ($id: ID!) { node(id: $id) { __typename id } }", id=id)).data["node"]
        assert one == {"__typename": name, "id": id}


async def test_what_is_listed_is_found_again_and_no_two_have_the_same_id(api: Api):
    await everything(api)
    listed = (await api.ask(LISTED)).data
    rows = [*listed["products"], *listed["cpu"], *listed["registryAuths"]]
    rows += [row for name in ("events", "jobs", "templates") for row in listed[name]["nodes"]]
    assert len({row["id"] for row in rows}) == len(rows) > 20

    again = """query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id
      ... on InstanceEvent { cursor type status previousStatus occurredAt }
      ... on Job { kind }
      ... on Product { novitaId name region { code } pricePerGpuHour { amountMicros } }
      ... on RegistryAuth { novitaId name username }
      ... on Template { novitaId name image registryAuthId }
    } }"""
    found: list[Any] = []
    for start in range(0, len(rows), 100):
        answer = await api.ask(again, ids=[row["id"] for row in rows[start : start + 100]])
        found += answer.data["nodes"]
    assert found == rows


async def test_a_product_of_several_regions_is_one_in_each(api: Api):
    products = (await api.ask("{ products { id novitaId region { code } } }")).data["products"]
    places: dict[str, set[str]] = {}
    for product in products:
        places.setdefault(product["novitaId"], set()).add(product["region"]["code"])
    assert max(len(each) for each in places.values()) > 1
    assert len({product["id"] for product in products}) == len(products)

    quoted = '{ quote(input: {productName: "RTX 4090 24GB"}) { best { productId region } } }'
    best = (await api.ask(quoted)).data["quote"]["best"]
    document = "query ($id: ID!) { node(id: $id) { ... on Product { name region { code } } } }"
    node = (await api.ask(document, id=best["productId"])).data["node"]
    assert node == {"name": "RTX 4090 24GB", "region": {"code": best["region"]}}


async def test_ids_of_the_provider_are_taken_in_both_forms(api: Api):
    listed = (await api.ask(LISTED)).data
    template = next(each for each in listed["templates"]["nodes"] if each["registryAuthId"])
    document = """query ($ours: ID!, $theirs: ID!) {
      ours: template(id: $ours) { id novitaId } theirs: template(id: $theirs) { id novitaId } }"""
    data = (await api.ask(document, ours=template["id"], theirs=template["novitaId"])).data
    assert data["ours"] == data["theirs"] == {"id": template["id"], "novitaId": template["novitaId"]}

    auth = listed["registryAuths"][0]
    for number, (template_id, auth_id) in enumerate(
        [(template["id"], auth["id"]), (template["novitaId"], auth["novitaId"])]
    ):
        made = await api.create(name=f"form-{number}", image=None, templateId=template_id, registryAuthId=auth_id)
        assert made["errors"] == []
    rows = await api.world.rows("SELECT template_id, image_auth_id FROM instance")
    assert {tuple(row) for row in rows} == {(template["novitaId"], auth["novitaId"])}


async def test_an_error_of_the_provider_leaves_the_other_nodes(api: Api):
    known = await everything(api)
    api.world.faults(Fault(FaultKind.ERROR, ("GET /template",), status=400, reason="BROKEN", message="not now"))

    answer = await api.ask(DOCUMENT, ids=[known["Instance"], "tpl_999", known["Job"]])

    assert [node and node["__typename"] for node in answer.body["data"]["nodes"]] == ["Instance", None, "Job"]
    assert [error["path"] for error in answer.body["errors"]] == [["nodes", 1]]


async def test_ids_of_another_project_and_unknown_ids_are_null_in_their_places(api: Api):
    known = await everything(api)
    stranger, _ = await api.world.new_token("another")
    await api.world.enqueue(CleanUp())  # of no project

    seen = await ask(api, *known.values(), token=stranger)
    assert [node and node["__typename"] for node in seen] == [name if name in SHARED else None for name in known]
    unknown = [id.split("_")[0] + "_" + "0" * 32 for id in known.values()]
    odd = [
        "",
        "_",
        "inst_",
        "inst_x",
        "job_",
        "job_-1",
        "job_99999999999999999999",
        "what_" + "0" * 32,
        "\x00",
        "evt_",
        "tpl_",
        "auth_",
        "prod_",
        "prod_:",
        "prod_gpu:as-sgp-2",
        "prod_gpu::x",
    ]
    assert await ask(api, *unknown, known["Job"], *odd) == [
        *[None] * len(unknown),
        {"__typename": "Job", "id": known["Job"]},
        *[None] * len(odd),
    ]


async def test_there_is_an_end_to_how_many(api: Api):
    assert (await api.ask(DOCUMENT, ids=[])).error["code"] == "INVALID_IDS"
    assert (await api.ask(DOCUMENT, ids=["inst_x"] * 101)).error["code"] == "INVALID_IDS"
    assert await ask(api, *["inst_x"] * 100) == [None] * 100
