"""createInstance while too many creates of the project wait, and the place of one that waits."""

from tests.support.api import Api

CREATE = """mutation ($input: CreateInstanceInput!) { createInstance(input: $input) {
  operation { queue { position startsAt } } errors { code ... on QueueFull { retryAt } } } }"""


async def test_a_create_has_a_place_and_one_too_many_is_refused(api: Api):
    given = {"productName": "RTX 4090 24GB", "image": "nginx"}
    line = api.server.runtime.create_line
    line.pending_max, before = 2, line.pending_max
    try:
        answers = [
            (await api.ask(CREATE, input={**given, "name": f"queued-{number}"})).data["createInstance"]
            for number in range(3)
        ]
    finally:
        line.pending_max = before

    assert [each["operation"]["queue"]["position"] for each in answers[:2]] == [1, 2]
    (refusal,) = answers[2]["errors"]
    assert (refusal["code"], answers[2]["operation"]) == ("QUEUE_FULL", None)
    assert refusal["retryAt"] is not None
