"""createInstance while too many creates of the project wait, and the place of one that waits."""

from typing import Any

from tests.support.api import Api
from tests.support.api_server import serving

CREATE = """mutation ($input: CreateInstanceInput!) { createInstance(input: $input) {
  operation { queue { position startsAt } } errors { code ... on QueueFull { retryAt } } } }"""


async def test_a_create_has_a_place_and_one_too_many_is_refused(api: Api):
    given = {"productName": "RTX 4090 24GB", "image": "nginx"}
    async with serving(api.server.runtime.database_url, api.server.simulator, max_pending_creates=2) as server:
        answers: list[dict[str, Any]] = []
        for number in range(3):
            variables = {"input": {**given, "name": f"queued-{number}"}}
            answer = await server.ask(CREATE, token=api.token, variables=variables)
            answers.append(answer.data["createInstance"])

    assert [each["operation"]["queue"]["position"] for each in answers[:2]] == [1, 2]
    (refusal,) = answers[2]["errors"]
    assert (refusal["code"], answers[2]["operation"]) == ("QUEUE_FULL", None)
    assert refusal["retryAt"] is not None
