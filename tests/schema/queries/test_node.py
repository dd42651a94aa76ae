"""node and nodes: anything by its id, if the caller may see it."""

from typing import Any

from schema import ids
from schema.root import schema
from server.queue.kinds import CleanUp
from server.webhooks import deliveries
from tests.support.api import Api

DOCUMENT = "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }"


async def everything(api: Api) -> dict[str, str]:
    """One of each, by type."""
    made = await api.create()
    async with api.world.database.write() as session:
        delivery = await deliveries.insert_test_delivery(session, api.caller.project_id, "http://127.0.0.1:9/hook")
    job = await api.world.value("SELECT min(id) FROM job WHERE project_id = $1", api.caller.project_id)
    return {
        "Instance": made["instance"]["id"],
        "Operation": made["operation"]["id"],
        "Job": ids.format_number(ids.JOB, job),
        "WebhookDelivery": ids.format_id(ids.DELIVERY, delivery.id),
        "Token": ids.format_id(ids.TOKEN, api.caller.token_id),
        "Project": ids.format_id(ids.PROJECT, api.caller.project_id),
    }


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


async def test_ids_of_another_project_and_unknown_ids_are_null_in_their_places(api: Api):
    known = await everything(api)
    stranger, _ = await api.world.new_token("another")
    await api.world.enqueue(CleanUp())  # of no project

    assert await ask(api, *known.values(), token=stranger) == [None] * len(known)
    unknown = [id.split("_")[0] + "_" + "0" * 32 for id in known.values()]
    odd = ["", "_", "inst_", "inst_x", "job_", "job_-1", "job_99999999999999999999", "what_" + "0" * 32, "\x00"]
    assert await ask(api, *unknown, known["Job"], *odd) == [
        *[None] * len(unknown),
        {"__typename": "Job", "id": known["Job"]},
        *[None] * len(odd),
    ]


async def test_there_is_an_end_to_how_many(api: Api):
    assert (await api.ask(DOCUMENT, ids=[])).error["code"] == "INVALID_IDS"
    assert (await api.ask(DOCUMENT, ids=["inst_x"] * 101)).error["code"] == "INVALID_IDS"
    assert await ask(api, *["inst_x"] * 100) == [None] * 100
