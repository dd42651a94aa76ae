"""The client against a server whose schema has grown: a new enum value, error type and field."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from graphql import (
    GraphQLEnumType,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    build_schema,
    graphql_sync,
)
from pilotlight_client import AsyncPilotlight, Refused
from pilotlight_client.models import MutationError, Refusal

from tests.support.processes import ROOT

NOW = "2026-11-18T10:00:00+00:00"
ID = "inst_" + "1" * 32
GIVEN = {
    "id": ID,
    "status": "HIBERNATING",
    "actions": ["DELETE", "HIBERNATE"],
    "labels": [{"key": "team", "value": "a"}],
}
SCALARS = {"DateTime": NOW, "Duration": 1.5, "Int": 1, "BigInt": 1, "Float": 1.0, "Boolean": False}
ERRORS = [
    {"__typename": "Hibernating", "code": "HIBERNATING", "message": "It sleeps.", "path": [], "until": NOW},
    {"__typename": "Refusal", "code": "SOME_CODE", "message": "No.", "path": ["input"], "help": "Ask."},
]


def grown() -> GraphQLSchema:
    text = (ROOT / "schema" / "schema.graphql").read_text()
    text = text.replace("enum InstanceStatus {", "enum InstanceStatus {\n  HIBERNATING\n", 1)
    text = text.replace("enum OperationKind {", "enum OperationKind {\n  HIBERNATE\n", 1)
    text = text.replace(
        "type Instance implements Node {", "type Instance implements Node {\n  hibernatedAt: DateTime\n", 1
    )
    text += """
        type Hibernating implements MutationError {
          code: String! help: String message: String! path: [String!]! until: DateTime!
        }
    """
    schema = build_schema(text)
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLInterfaceType):
            kind.resolve_type = lambda value, *_: value["__typename"]
    return schema


def filled(kind: GraphQLObjectType) -> dict[str, Any]:
    """Some value for every field that may not be null."""
    value: dict[str, Any] = {"__typename": kind.name}
    for name, field in kind.fields.items():
        if not isinstance(field.type, GraphQLNonNull):
            continue
        inner = field.type.of_type
        if isinstance(inner, GraphQLList):
            value[name] = []
        elif isinstance(inner, GraphQLEnumType):
            value[name] = next(iter(inner.values))
        elif isinstance(inner, GraphQLObjectType):
            value[name] = filled(inner)
        else:
            value[name] = SCALARS.get(inner.name, "text")
    return value


@pytest.fixture
async def newer() -> AsyncIterator[AsyncPilotlight]:
    schema = grown()
    payload = {"instance": None, "operation": None, "replayed": False, "errors": ERRORS}
    kind = schema.type_map["Instance"]
    assert isinstance(kind, GraphQLObjectType)
    instance = {**filled(kind), **GIVEN}
    root = {"instance": lambda *_, **__: instance, "stopInstance": lambda *_, **__: payload}

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        result = graphql_sync(schema, body["query"], root, variable_values=body["variables"])
        return web.json_response(result.formatted)

    app = web.Application()
    app.router.add_post("/graphql", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with AsyncPilotlight(f"http://{host}:{port}", "pl_any") as client:
            yield client
    finally:
        await runner.cleanup()


async def test_unknown_enum_values_stay_words_and_known_fields_are_read(newer: AsyncPilotlight):
    instance = await newer.get(ID)

    assert (instance.status, type(instance.status)) == ("HIBERNATING", str)
    assert instance.actions == ("DELETE", "HIBERNATE")
    assert instance.labels == {"team": "a"}


async def test_unknown_error_types_are_read_as_mutation_errors(newer: AsyncPilotlight):
    with pytest.raises(Refused) as refused:
        await newer.stop(ID)

    first, second = refused.value.errors
    assert (type(first), first.code, first.message) == (MutationError, "HIBERNATING", "It sleeps.")
    assert (type(second), second.help) == (Refusal, "Ask.")
