"""`Operation.cursor`: where to begin watching an operation that was just accepted."""

from typing import Any

from tests.support.api import Api
from tests.support.waiting import until

CREATE = """mutation ($input: CreateInstanceInput!) { createInstance(input: $input) {
    instance { id } operation { id cursor } errors { code } } }"""
READ = "query ($id: ID!) { operation(id: $id) { cursor } }"
WATCH = """subscription ($after: String, $ids: [ID!]) {
    instanceEvents(after: $after, filter: {ids: $ids}) { type operationId } }"""
GIVEN = {"name": "watched", "productName": "RTX 4090 24GB", "image": "nginx", "ports": []}


async def watched(api: Api, after: str, id: str) -> list[tuple[str, str | None]]:
    given = {"after": after, "ids": [id]}
    async with api.server.watching(WATCH, token=api.token, variables=given) as socket:
        found = [await socket.next("instanceEvents") for _ in range(2)]
    return [(each["type"], each["operationId"]) for each in found]


async def test_an_operation_is_watched_from_its_first_event(api: Api):
    """In the payload its events may have no position yet; later they have one. Both cursors begin before them."""
    payload: dict[str, Any] = (await api.ask(CREATE, input=GIVEN)).data["createInstance"]
    operation, id = payload["operation"], payload["instance"]["id"]
    wanted = [("instance.created", operation["id"]), ("operation.started", operation["id"])]

    assert await watched(api, operation["cursor"], id) == wanted
    later = (await api.ask(READ, id=operation["id"])).data["operation"]["cursor"]
    assert await watched(api, later, id) == wanted


async def test_it_is_null_once_the_log_has_dropped_the_event(api: Api):
    payload: dict[str, Any] = (await api.ask(CREATE, input=GIVEN)).data["createInstance"]
    row_id = payload["operation"]["id"].removeprefix("op_")
    of_it = "event WHERE operation_id = $1::text::uuid"
    await until(lambda: api.world.value(f"SELECT count(*) = 2 FROM {of_it}", row_id), within=20)

    await api.world.execute(f"DELETE FROM {of_it}", row_id)

    assert (await api.ask(READ, id=payload["operation"]["id"])).data["operation"] == {"cursor": None}
