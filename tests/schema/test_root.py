"""Conventions of the whole schema: every type, field, argument and description follows them."""

import re
from typing import cast

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNamedType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    build_schema,
    get_named_type,
    specified_scalar_types,
)

from schema.root import schema

CORE = cast("GraphQLSchema", schema._schema)
OWN = [
    each
    for name, each in CORE.type_map.items()
    if not name.startswith("__") and name not in {each.name for each in specified_scalar_types.values()}
]
OUTPUTS = [each for each in OWN if isinstance(each, GraphQLObjectType | GraphQLInterfaceType)]
INPUTS = [each for each in OWN if isinstance(each, GraphQLInputObjectType)]
ENUMS = [each for each in OWN if isinstance(each, GraphQLEnumType)]
ROOTS = {"Query", "Mutation", "Subscription"}


def fields() -> list[tuple[str, GraphQLField]]:
    return [(f"{type.name}.{name}", field) for type in OUTPUTS for name, field in type.fields.items()]


def test_everything_is_described_down_to_the_last_word():
    bare = [type.name for type in OWN if not type.description]
    bare += [name for name, field in fields() if not field.description]
    bare += [f"{name}({arg}:)" for name, field in fields() for arg, each in field.args.items() if not each.description]
    bare += [f"{type.name}.{name}" for type in INPUTS for name, each in type.fields.items() if not each.description]
    bare += [f"{type.name}.{name}" for type in ENUMS for name, each in type.values.items() if not each.description]
    assert bare == []


def test_every_description_is_a_sentence():
    described: list[tuple[str, str | None]] = [(type.name, type.description) for type in OWN]
    described += [(name, field.description) for name, field in fields()]
    described += [(f"{name}({arg}:)", each.description) for name, field in fields() for arg, each in field.args.items()]
    described += [(f"{type.name}.{name}", each.description) for type in ENUMS for name, each in type.values.items()]
    wrong = [name for name, text in described if not re.fullmatch(r"(?s)[A-Z0-9`].*[.`]", text or "")]
    assert wrong == []


def test_names_follow_graphql_conventions():
    assert [type.name for type in OWN if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", type.name)] == []
    names = [name for name, _ in fields()] + [f"{type.name}.{name}" for type in INPUTS for name in type.fields]
    names += [f"{name}.{arg}" for name, field in fields() for arg in field.args]
    assert [name for name in names if not re.fullmatch(r"[a-z][A-Za-z0-9]*", name.rsplit(".", 1)[1])] == []
    words = [f"{type.name}.{name}" for type in ENUMS for name in type.values]
    assert [word for word in words if not re.fullmatch(r"[A-Z][A-Z0-9_]*", word.rsplit(".", 1)[1])] == []


def test_no_type_is_named_as_if_by_accident():
    """Inputs end in what they are, and so do the types of answers to mutations."""
    endings = ("Input", "Filter", "OrderBy", "Reference", "Source", "Change")
    assert [type.name for type in INPUTS if not type.name.endswith(endings)] == []
    mutation = cast("GraphQLObjectType", CORE.mutation_type)
    assert [
        name for name, field in mutation.fields.items() if not str(get_named_type(field.type)).endswith("Payload")
    ] == []


def test_mutations_take_one_input_and_answer_with_errors():
    mutation = cast("GraphQLObjectType", CORE.mutation_type)
    for name, field in mutation.fields.items():
        assert list(field.args) == ["input"], name
        payload = cast("GraphQLObjectType", get_named_type(field.type))
        assert str(payload.fields["errors"].type) == "[MutationError!]!", name
        assert [each.name for each in payload.interfaces] == ["Payload"], name
        # Whatever else is in it may be missing: a refused request has none of it.
        others = {key: value.type for key, value in payload.fields.items() if key != "errors"}
        empty = ("Boolean!", "Int!", "[ID!]!", "[InstanceResult!]!")
        assert [
            key for key, type in others.items() if isinstance(type, GraphQLNonNull) and str(type) not in empty
        ] == []


def test_lengths_of_time_are_durations_and_say_no_unit():
    timed = re.compile(r"(Seconds|Minutes|Hours|Millis|[a-z]Ms)$")
    names = [name for name, _ in fields()] + [f"{type.name}.{name}" for type in INPUTS for name in type.fields]
    names += [f"{name}.{arg}" for name, field in fields() for arg in field.args]
    assert [name for name in names if timed.search(name)] == []


# The words for the two ends of a time, where the type is about that time.
SPANS = {"OfferBucket.from", "CapacityWait.since", "CapacityWait.until"}


def test_moments_and_money_and_sizes_say_what_they_are():
    for name, field in fields():
        short = name.rsplit(".", 1)[1]
        kind = str(get_named_type(field.type))
        if re.search(r"(At|Until|Since)$", short):
            assert kind == "DateTime", name
        if kind == "DateTime" and name not in SPANS:
            assert re.search(r"(At|Until|Since|After|Before)$|^(at|deadline)$", short), name
        if re.search(r"price", short, re.IGNORECASE):
            assert kind == "Money", name
        if re.search(r"(size|memory|vram|disk)", short, re.IGNORECASE) and kind in ("Int", "BigInt"):
            assert re.search(r"(Gb|Bytes)", short) or short in ("size", "pageSize", "bulkSize"), name


def test_every_page_is_a_connection_of_the_same_shape():
    connections = [type for type in OUTPUTS if type.name.endswith("Connection")]
    assert len(connections) >= 8
    for type in connections:
        shape = {name: str(field.type) for name, field in type.fields.items()}
        node = type.name.removesuffix("Connection")
        assert shape["edges"] == f"[{node}Edge!]!"
        assert shape["nodes"] == f"[{node}!]!"
        assert shape["pageInfo"] == "PageInfo!"
        assert set(shape) <= {"edges", "nodes", "pageInfo", "totalCount"}
        edge = cast("GraphQLObjectType", CORE.type_map[f"{node}Edge"])
        assert {name: str(field.type) for name, field in edge.fields.items()} == {
            "cursor": "String!",
            "node": f"{node}!",
        }
    for name, field in fields():
        is_page = get_named_type(field.type) in connections
        arguments = {arg: str(each.type) for arg, each in field.args.items() if arg in ("first", "after")}
        assert not is_page or arguments == {"first": "Int!", "after": "String"}, name
        assert "first" not in field.args or field.args["first"].description == "Page size, 1 to 100.", name


# Lists that are whole: what they hold is bounded by something else than how long one has used the server.
BOUNDED = {
    "Query.products": "by the provider's catalogue",
    "Query.regions": "by the provider's catalogue",
    "Query.registryAuths": "by the account",
    "Query.cacheStats": "by the code",
    "Query.market": "by the provider's catalogue",
    "Query.offerHistory": "by BUCKETS_MAX",
    "Query.nodes": "by what was asked for",
}


def test_no_list_at_the_root_grows_without_bound():
    query = cast("GraphQLObjectType", CORE.query_type)
    lists = {f"Query.{name}" for name, field in query.fields.items() if _is_list(field.type)}
    assert lists == set(BOUNDED)


def _is_list(type: object) -> bool:
    return isinstance(type.of_type if isinstance(type, GraphQLNonNull) else type, GraphQLList)


def test_lists_never_hold_null_except_where_a_place_means_something():
    holey = [name for name, field in fields() if _is_list(field.type) and not _is_full(field.type)]
    assert holey == ["Query.nodes"]


def _is_full(type: object) -> bool:
    inner = type.of_type if isinstance(type, GraphQLNonNull) else type
    return isinstance(inner, GraphQLList) and isinstance(inner.of_type, GraphQLNonNull)


def test_an_object_has_an_id_exactly_if_it_is_a_node():
    own = {each.name for each in OUTPUTS if "id" in each.fields}
    nodes = {each.name for each in OUTPUTS if "Node" in [face.name for face in each.interfaces]} | {"Node"}
    assert own == nodes
    assert {str(each.fields["id"].type) for each in OUTPUTS if "id" in each.fields} == {"ID!"}


def test_alternatives_are_one_of():
    printed = build_schema(schema.as_str()).type_map.values()
    one_of = {type.name for type in printed if isinstance(type, GraphQLInputObjectType) and type.is_one_of}
    references = {"InstanceReference", "InstanceSource", "LabelFilter", "BudgetScopeInput", "WaitInput"}
    assert one_of == {*references, "LifetimeChange", "RecoveryChange", "WebhookChange"}


def test_scalars_say_where_they_are_specified_or_what_they_are():
    scalars = {each.name: each for each in OWN if isinstance(each, GraphQLScalarType)}
    assert set(scalars) == {"BigInt", "DateTime", "Duration"}
    urls = {name: scalar.specified_by_url for name, scalar in scalars.items()}
    assert urls == {
        "BigInt": "https://www.rfc-editor.org/rfc/rfc7493#section-2.2",
        "DateTime": "https://www.rfc-editor.org/rfc/rfc3339",
        "Duration": "https://www.rfc-editor.org/rfc/rfc8259#section-6",
    }


def test_every_type_can_be_reached_from_a_root_field():
    reached: set[str] = set()
    waiting: list[GraphQLNamedType] = [
        each for each in (CORE.query_type, CORE.mutation_type, CORE.subscription_type) if each is not None
    ]
    while waiting:
        each = waiting.pop()
        if each.name in reached:
            continue
        reached.add(each.name)
        if isinstance(each, GraphQLInterfaceType):
            waiting += CORE.get_implementations(each).objects
        if isinstance(each, GraphQLObjectType | GraphQLInterfaceType):
            waiting += each.interfaces
            for field in each.fields.values():
                waiting += [get_named_type(field.type), *(get_named_type(arg.type) for arg in field.args.values())]
        if isinstance(each, GraphQLInputObjectType):
            waiting += [get_named_type(field.type) for field in each.fields.values()]
    assert {type.name for type in OWN} <= reached


def test_the_printed_schema_can_be_read_by_others():
    read = build_schema(schema.as_str())
    assert set(read.type_map) >= {type.name for type in OWN}
