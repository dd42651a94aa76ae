"""A document that was checked once is not checked again, and one that is wrong is wrong every time."""

from schema.known import KnownDocuments
from server.words import Role
from tests.schema.conftest import Api

QUERY = "query Known($id: ID!) { instance(id: $id) { id status } }"


async def test_a_document_is_read_once_and_answers_with_its_own_variables(api: Api):
    made = (await api.create(name="known"))["instance"]["id"]
    first = (await api.ask(QUERY, id=made)).data
    document = KnownDocuments._known[QUERY]

    other = (await api.ask(QUERY, id="inst_nonsense")).data
    again = (await api.ask(QUERY, id=made)).data

    assert first == again == {"instance": {"id": made, "status": "CREATING"}}
    assert other == {"instance": None}
    assert KnownDocuments._known[QUERY] is document


async def test_a_wrong_document_is_refused_every_time(api: Api):
    wrong = "{ instances { nodes { nonsense } } }"
    for _ in range(2):
        assert "nonsense" in (await api.ask(wrong)).error["message"]
    assert wrong not in KnownDocuments._known


async def test_a_known_document_still_needs_its_role(api: Api):
    """What is remembered is that the document is right, not that its sender may do it."""
    mutation = 'mutation { deleteInstance(input: {id: "inst_x"}) { errors { code } } }'
    await api.ask(mutation)
    reader, _ = await api.world.new_token(role=Role.READER)

    assert (await api.ask(mutation, token=reader)).error["code"] == "FORBIDDEN"
