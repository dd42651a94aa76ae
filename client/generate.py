"""Writes models.py, inputs.py, documents.py and sync.py of the client; `--check` compares them instead.

models.py, inputs.py and documents.py come from the schema and from operations.graphql, sync.py from aio.py.
"""

import ast
import keyword
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    OperationDefinitionNode,
    build_schema,
    get_named_type,
    parse,
    print_ast,
    validate,
)

HERE = Path(__file__).parent
PACKAGE = HERE / "pilotlight_client"
SDL = HERE.parent / "schema" / "schema.graphql"

# Fields that would lead round in a circle, or that no method of the client needs.
SKIPPED = {
    "CapacityWait": {"offers"},  # of every operation of a page: more than a request may cost
    "Instance": {"operations"},
    "InstanceEvent": {"instance", "operation", "causedBy"},
    "InstanceSnapshot": set[str](),
    "Operation": {"instance", "requestedBy", "cursor"},
    "OperationSnapshot": {"requestedBy"},
    "Region": set[str](),
    "Volume": {"attachedTo"},
    "Token": {"createdBy", "revokedBy", "project"},
}
HAND_WRITTEN = {"Money"}  # in values.py
SHORT_NAMES = {"product_name": "product"}
SCALARS = {
    "ID": "str",
    "String": "str",
    "Int": "int",
    "Float": "float",
    "Boolean": "bool",
    "BigInt": "int",
    "DateTime": "datetime",
    "Duration": "timedelta",
}
# What each method takes: the name of its arguments' class, the input type, and the fields that the client fills in.
ARGUMENTS = {
    "CreateArguments": ("CreateInstanceInput", {"validateOnly"}),
    "QuoteArguments": ("QuoteInput", {"validateOnly", "idempotencyKey"}),
    "StartArguments": ("StartInstanceInput", {"id", "name", "instance", "validateOnly"}),
    "VerbArguments": ("StopInstanceInput", {"id", "name", "instance", "validateOnly"}),
    "UpdateArguments": ("UpdateInstanceInput", {"id", "instance", "validateOnly"}),
    "ListFilter": ("InstanceFilter", set[str]()),
    "ProductArguments": ("ProductFilter", set[str]()),
    "BudgetArguments": ("CreateBudgetInput", {"validateOnly"}),
    "WaitArguments": ("UpdateWaitInput", {"operationId", "validateOnly"}),
    "OfferFilter": ("MarketFilter", set[str]()),
    "AlertArguments": ("CreateAlertInput", {"validateOnly"}),
    "SpendArguments": ("SpendFilter", set[str]()),
    "EventFilter": ("InstanceEventFilter", set[str]()),
}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def main() -> int:
    schema = build_schema(SDL.read_text())
    written = {
        "documents.py": documents(schema),
        "models.py": models(schema),
        "inputs.py": inputs(schema),
        "sync.py": sync((PACKAGE / "aio.py").read_text(), (PACKAGE / "requests.py").read_text()),
    }
    stale: list[str] = []
    for name, text in written.items():
        file = PACKAGE / name
        formatted = _format(text, file)
        if not file.exists() or file.read_text() != formatted:
            stale.append(name)
            if "--check" not in sys.argv:
                file.write_text(formatted)
    if stale and "--check" in sys.argv:
        sys.stderr.write(f"the client's {', '.join(stale)} are not up to date; run `make client` and commit them\n")
        return 1
    return 0


def _format(text: str, file: Path) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for arguments in (["check", "-q", "--fix", "--select", "I,F401"], ["format", "-q"]):
        call = [*ruff, *arguments, "--stdin-filename", str(file), "-"]
        text = subprocess.run(call, input=text, text=True, capture_output=True, check=True).stdout
    return text


# Documents


def documents(schema: GraphQLSchema) -> str:
    used: dict[str, str] = {}
    lines: list[str] = []
    for node in parse((HERE / "operations.graphql").read_text()).definitions:
        assert isinstance(node, OperationDefinitionNode)
        assert node.name is not None
        text = one_line(print_ast(node))
        needed = fragments_of(schema, text)
        problems = validate(schema, parse("\n".join([text, *needed.values()])))
        assert not problems, f"{node.name.value}: {problems[0].message}"
        used |= needed
        names = ", ".join(f'"{name}"' for name in sorted(needed))
        lines.append(f'{snake(node.name.value).upper()} = _with_fragments("""{text}""", {names})')
    return "\n".join(
        [
            '"""The documents that the client sends. Written by `make client`."""',
            "",
            "_FRAGMENTS = {",
            *(f'    "{name}": """{used[name]}""",' for name in sorted(used)),
            "}",
            "",
            "def _with_fragments(operation: str, *names: str) -> str:",
            '    return "\\n".join([operation, *(_FRAGMENTS[name] for name in names)])',
            "",
            *lines,
        ]
    )


def fragments_of(schema: GraphQLSchema, text: str) -> dict[str, str]:
    """The fragments that the text uses, directly or not, by their types."""
    found: dict[str, str] = {}
    while wanted := {name for part in [text, *found.values()] for name in re.findall(r"\.\.\.(\w+)Fields", part)} - {
        *found
    }:
        found |= {name: fragment(schema, name) for name in wanted}
    return found


def one_line(text: str) -> str:
    return " ".join(text.split())


def fragment(schema: GraphQLSchema, name: str) -> str:
    kind = schema.type_map[name]
    assert isinstance(kind, (GraphQLObjectType, GraphQLInterfaceType)), name
    selections = [selection(field_name, field) for field_name, field in selected_fields(kind)]
    if isinstance(kind, GraphQLInterfaceType):
        selections.insert(0, "__typename")
        for implementation in schema.get_implementations(kind).objects:
            own = [selection(*each) for each in selected_fields(implementation) if each[0] not in kind.fields]
            if own:
                selections.append(f"... on {implementation.name} {{ {' '.join(own)} }}")
    return f"fragment {name}Fields on {name} {{ {' '.join(selections)} }}"


def selected_fields(kind: GraphQLObjectType | GraphQLInterfaceType) -> Iterable[tuple[str, GraphQLField]]:
    skipped = SKIPPED.get(kind.name, set[str]())
    return [(name, field) for name, field in kind.fields.items() if name not in skipped and not field.args]


def selection(name: str, field: GraphQLField) -> str:
    kind = get_named_type(field.type)
    is_leaf = not isinstance(kind, (GraphQLObjectType, GraphQLInterfaceType))
    return name if is_leaf else f"{name} {{ ...{kind.name}Fields }}"


# Models


def used_types(schema: GraphQLSchema) -> list[GraphQLObjectType | GraphQLInterfaceType]:
    """The types of the fragments, those that others refer to first."""
    found: dict[str, GraphQLObjectType | GraphQLInterfaceType] = {}
    used = re.findall(r"fragment (\w+)Fields on", documents(schema))  # also of types that only others refer to

    def add(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' > '.join([*path, name])}; skip one of these fields"
        kind = schema.type_map[name]
        assert isinstance(kind, (GraphQLObjectType, GraphQLInterfaceType))
        if name in found:
            return
        for _, field in selected_fields(kind):
            inner = get_named_type(field.type)
            if isinstance(inner, (GraphQLObjectType, GraphQLInterfaceType)):
                add(inner.name, (*path, name))
        found[name] = kind
        if isinstance(kind, GraphQLInterfaceType):
            for implementation in schema.get_implementations(kind).objects:
                add(implementation.name, ())

    for name in used:
        add(name, ())
    return list(found.values())


def models(schema: GraphQLSchema) -> str:
    kinds = [kind for kind in used_types(schema) if kind.name not in HAND_WRITTEN]
    lines = [
        '"""What the server answers, as types. Written by `make client`.',
        "",
        "An enum value that this version does not know stays a `str`; an error type that it does not know is a",
        '`MutationError`."""',
        "",
        "from dataclasses import dataclass",
        "from datetime import datetime, timedelta",
        "from enum import Enum",
        "from pilotlight_client.values import Model, Money",
        "",
    ]
    for kind in enums(schema, kinds):
        lines += [f"class {kind.name}(str, Enum):", f'    """{kind.description}"""', ""]
        lines += [f'    {name} = "{name}"' for name in kind.values]
        lines += ["", "    __str__ = str.__str__", ""]
    errors: list[str] = []
    for kind in kinds:
        is_error = any(each.name == "MutationError" for each in getattr(kind, "interfaces", ()))
        if is_error:
            errors.append(kind.name)
        base = "MutationError" if is_error else "Model"
        lines += [
            "@dataclass(frozen=True, kw_only=True, eq=False, repr=False)",
            f"class {kind.name}({base}):",
            f'    """{kind.description}"""',
            "",
        ]
        for name, field in selected_fields(kind):
            python_name = f"{snake(name)}_" if keyword.iskeyword(name) else snake(name)
            lines.append(f"    {python_name}: {python_type(field.type)}")
            lines.append(f'    """{(field.description or "").strip()}"""')
        lines.append("")
    names = ", ".join(f'"{name}": {name}' for name in errors)
    lines.append("# Error types with fields of their own; all others are read as MutationError.")
    lines.append(f"ERROR_TYPES: dict[str, type[MutationError]] = {{{names}}}")
    return "\n".join(lines)


def enums(schema: GraphQLSchema, kinds: list[GraphQLObjectType | GraphQLInterfaceType]) -> list[GraphQLEnumType]:
    found: dict[str, GraphQLEnumType] = {}
    for kind in kinds:
        for _, field in selected_fields(kind):
            inner = get_named_type(field.type)
            if isinstance(inner, GraphQLEnumType):
                found[inner.name] = inner
    for type_name in reachable_inputs(schema):
        for field in type_name.fields.values():
            inner = get_named_type(field.type)
            if isinstance(inner, GraphQLEnumType):
                found[inner.name] = inner
    return [found[name] for name in sorted(found)]


def python_type(kind: object, *, is_nullable: bool = True) -> str:
    if isinstance(kind, GraphQLNonNull):
        return python_type(kind.of_type, is_nullable=False)
    if isinstance(kind, GraphQLList):
        inner = get_named_type(kind)
        shown = "dict[str, str]" if inner.name == "KeyValue" else f"tuple[{python_type(kind.of_type)}, ...]"
    elif isinstance(kind, GraphQLEnumType):
        shown = f"{kind.name} | str"
    else:
        name = kind.name  # type: ignore[attr-defined]
        shown = SCALARS.get(name, name)
    return f"{shown} | None" if is_nullable else shown


# Inputs


def reachable_inputs(schema: GraphQLSchema) -> list[GraphQLInputObjectType]:
    found: dict[str, GraphQLInputObjectType] = {}

    def add(kind: GraphQLInputObjectType) -> None:
        for field in kind.fields.values():
            inner = get_named_type(field.type)
            if isinstance(inner, GraphQLInputObjectType) and inner.name not in found:
                add(inner)
                found[inner.name] = inner

    for name, _ in ARGUMENTS.values():
        kind = schema.type_map[name]
        assert isinstance(kind, GraphQLInputObjectType)
        add(kind)
        found.setdefault(name, kind)
    return list(found.values())


def inputs(schema: GraphQLSchema) -> str:
    lines = [
        '"""What the methods take, as types. Written by `make client`."""',
        "",
        "from collections.abc import Mapping, Sequence",
        "from datetime import datetime, timedelta",
        "from decimal import Decimal",
        "from typing import Literal",
        "from typing_extensions import Required, TypedDict",
        "from pilotlight_client.values import Model, Money",
        "",
    ]
    lines.insert(-2, f"from pilotlight_client.models import {', '.join(kind.name for kind in enums(schema, []))}")
    roots = {name for name, _ in ARGUMENTS.values()}
    for kind in reachable_inputs(schema):
        if kind.name not in roots:
            lines += input_class(kind.name, kind, set[str]())
    for name, (of, filled) in ARGUMENTS.items():
        kind = schema.type_map[of]
        assert isinstance(kind, GraphQLInputObjectType)
        lines += input_class(name, kind, filled)
    return "\n".join(lines)


def input_class(name: str, kind: GraphQLInputObjectType, filled: set[str]) -> list[str]:
    fields = {each: field for each, field in kind.fields.items() if each not in filled}
    if any(keyword.iskeyword(each) for each in fields):  # a keyword: only the functional form can have it
        items = ", ".join(f'"{snake(each)}": {input_type(field.type)!r}' for each, field in fields.items())
        return [f'{name} = TypedDict("{name}", {{{items}}}, total=False)', f'"""{kind.description}"""', ""]
    lines = [f"class {name}(TypedDict, total=False):", f'    """{kind.description}"""', ""]
    for each, field in fields.items():
        shown = input_type(field.type)
        is_required = isinstance(field.type, GraphQLNonNull) and field.ast_node is not None
        is_required = is_required and field.ast_node.default_value is None  # type: ignore[union-attr]
        field_name = SHORT_NAMES.get(snake(each), snake(each))
        lines.append(f"    {field_name}: {f'Required[{shown}]' if is_required else shown}")
        lines.append(f'    """{(field.description or "").strip()}"""')
    return [*lines, ""]


def input_type(kind: object) -> str:
    if isinstance(kind, GraphQLNonNull):
        return input_type(kind.of_type)
    if isinstance(kind, GraphQLList):
        inner = input_type(kind.of_type)
        named = get_named_type(kind).name
        return f"Mapping[str, str] | Sequence[{inner}]" if named in KEY_VALUES else f"Sequence[{inner}]"
    if isinstance(kind, GraphQLEnumType):
        words = ", ".join(f'"{name}"' for name in kind.values if name != "OTHER")
        return f"{kind.name} | Literal[{words}]"
    name = kind.name  # type: ignore[attr-defined]
    if name == "MoneyInput":
        return "Money | Decimal | MoneyInput"
    return "timedelta | float" if name == "Duration" else SCALARS.get(name, name)


KEY_VALUES = {"KeyValueInput", "EnvVariableInput"}


# The synchronous client


def sync(*texts: str) -> str:
    """Each public method of AsyncPilotlight and of its base, run in the loop of a thread."""
    modules = [ast.parse(text) for text in texts]
    classes = {each.name: each for module in modules for each in module.body if isinstance(each, ast.ClassDef)}
    source = classes["AsyncPilotlight"]
    methods = [
        *source.body,
        *(each for each in classes["AsyncRequests"].body if getattr(each, "name", "") != "__init__"),
    ]
    own = ("pilotlight_client.transport", "pilotlight_client.requests")
    imports = [
        ast.unparse(each)
        for module in modules
        for each in module.body
        if isinstance(each, ast.ImportFrom) and each.module not in own
    ]
    lines = [
        '"""The synchronous client: AsyncPilotlight in the loop of a thread of its own. Written by `make client`."""',
        "",
        *imports,
        "from collections.abc import Generator, Iterator",
        "from contextlib import contextmanager",
        "from typing_extensions import Self",
        "from pilotlight_client.aio import AsyncPilotlight",
        "from pilotlight_client.loop_thread import LoopThread",
        "from pilotlight_client.machine import Machine",
        "",
        "class Pilotlight:",
        f'    """{ast.get_docstring(source)}"""',
        "",
    ]
    for node in methods:
        if not isinstance(node, (ast.AsyncFunctionDef, ast.FunctionDef)):
            continue
        if node.name == "__init__":
            lines += sync_init(node)
        elif not node.name.startswith("_"):
            lines += sync_method(node)
    lines += [
        "    def close(self) -> None:",
        '        """End the connections and the thread."""',
        "        self._thread.run(self._client.aclose())",
        "        self._thread.stop()",
        "",
        "    def __enter__(self) -> Self:",
        "        return self",
        "",
        "    def __exit__(self, *_: object) -> None:",
        "        self.close()",
    ]
    return "\n".join(lines)


def sync_init(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [
        f"    def __init__({ast.unparse(node.args)}) -> None:",
        "        self._thread = LoopThread()",
        "        self._client = self._thread.run(self._make(" + passed(node.args) + "))",
        "",
        "    @staticmethod",
        f"    async def _make({ast.unparse(without_self(node.args))}) -> AsyncPilotlight:",
        f"        return AsyncPilotlight({passed(node.args)})",
        "",
    ]


def sync_method(node: ast.AsyncFunctionDef | ast.FunctionDef) -> list[str]:
    if node.name == "aclose":
        return []
    returned = ast.unparse(node.returns) if node.returns else "None"
    decorators = {ast.unparse(each) for each in node.decorator_list}
    call = f"self._client.{node.name}({passed(node.args)})"
    head = f"    def {node.name}({ast.unparse(node.args)}) -> "
    doc = f'        """{ast.get_docstring(node)}"""'
    if "asynccontextmanager" in decorators:
        inner = re.sub(
            r"Async(Iterator|Generator)\[AsyncMachine(, None)?\]", "Generator[Machine, None, None]", returned
        )
        return [
            "    @contextmanager",
            head + inner + ":",
            doc,
            f"        with self._thread.entered({call}) as machine:",
            "            yield Machine(machine, self._thread)",
            "",
        ]
    if "staticmethod" in decorators:
        shown = ast.unparse(node).replace("\n", "\n    ")
        return [f"    {shown}", ""]
    if returned.startswith("AsyncIterator"):
        return [
            head + returned.replace("AsyncIterator", "Iterator") + ":",
            doc,
            f"        return self._thread.iterate({call})",
            "",
        ]
    return [head + returned + ":", doc, f"        return self._thread.run({call})", ""]


def without_self(arguments: ast.arguments) -> ast.arguments:
    rest = ast.parse(f"def f({ast.unparse(arguments)}): pass").body[0]
    assert isinstance(rest, ast.FunctionDef)
    (rest.args.posonlyargs or rest.args.args).pop(0)
    return rest.args


def passed(arguments: ast.arguments) -> str:
    positional = [each.arg for each in [*arguments.posonlyargs, *arguments.args]][1:]
    named = [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    extra = [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join([*positional, *named, *extra])


if __name__ == "__main__":
    sys.exit(main())
