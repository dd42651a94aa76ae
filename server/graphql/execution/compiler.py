"""Compiles the selection of a type into one Python function that reads the attributes into the response.

Compiled are attributes of the type's class, resolvers that are functions of the object alone, and fields that are
declared as `Loaded`: the function notes their keys in `run`, and the executor loads all of them at once. Fields with a
directive and other resolvers are left to the library. The function raises on anything unexpected (another class, a null
that is not allowed, a value that a scalar refuses, an awaitable). The executor then lets the library complete the value
from the beginning, so errors and nulls are the library's own. Reading such a field twice has no effect.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from graphql import (
    FieldNode,
    GraphQLEnumType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    is_abstract_type,
    is_leaf_type,
)
from graphql.execution.collect_fields import FieldDetails, FragmentDetails, collect_subfields
from strawberry.types.field import StrawberryField

from schema.loaded import LOADED, Loaded
from server.graphql.execution.fields import (
    DEFINITION,
    NotCompilable,
    Unexpected,
    attribute_of,
    classes_of,
    coercer_of,
    is_iso,
    simple_resolver,
)

MAX_FIELDS = 500  # of one function


Nodes = Sequence[FieldDetails]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedField:
    """A field of a compiled selection that is loaded. `read` completes its value, `definition` has its arguments."""

    name: str
    loaded: Loaded
    read: "Read"
    definition: Any
    node: FieldNode


# What one execution has to load: keys, and the objects of the response that wait for the values.
Run = dict[LoadedField, list[tuple[Any, dict[str, Any]]]]
Read = Callable[[Any, Run], Any]


@dataclass(frozen=True, slots=True)
class PartialReader:
    """`read` returns the plain fields of an object; the fields named by `others` are None in its result."""

    read: Read
    others: tuple[str, ...]


class Compiler:
    """Compiles selections of one operation. Variables are not known here, so directives can't be compiled."""

    def __init__(self, schema: GraphQLSchema, fragments: dict[str, FragmentDetails], operation: Any) -> None:
        self._schema = schema
        self._fragments = fragments
        self._operation = operation

    def value(self, type: Any, nodes: Nodes) -> Read | None:
        """A function from a resolver's result to its value in the response; None if the library has to do it."""
        try:
            return _Source(self).value(type, nodes)
        except NotCompilable:
            return None

    def plain_fields(self, type: GraphQLObjectType, nodes: Nodes) -> PartialReader | None:
        """Reads the plain fields of an object that also has others; None if it has fewer than two."""
        try:
            grouped = self.fields(type, nodes)
        except NotCompilable:
            return None
        source = _Source(self)
        others = tuple(name for name, group in grouped.items() if not source.is_plain(type, group))
        if len(grouped) - len(others) < 2:
            return None
        return PartialReader(source.reader(type, grouped, without=others), others)

    def fields(self, type: GraphQLObjectType, nodes: Nodes) -> dict[str, list[FieldDetails]]:
        """The selected fields of an object, by their names in the response."""
        if any(each.fragment_variable_values or each.defer_usage for each in nodes):
            raise NotCompilable
        for each in nodes:
            self._refuse_directives(each.node.selection_set, set())
        collected = collect_subfields(
            self._schema, self._fragments, _NO_VARIABLES, self._operation, type, list(nodes), True
        )
        if collected.new_defer_usages:
            raise NotCompilable
        return dict(collected.grouped_field_set)

    def field(self, type: GraphQLObjectType, name: str) -> Any:
        return self._schema.get_field(type, name)

    def possible(self, type: Any) -> Sequence[GraphQLObjectType]:
        return self._schema.get_possible_types(type)

    def _refuse_directives(self, selections: Any, seen: set[str]) -> None:
        """On this level; nested selections are checked when they are compiled."""
        for each in () if selections is None else selections.selections:
            if each.directives:
                raise NotCompilable
            if each.kind == "inline_fragment":
                self._refuse_directives(each.selection_set, seen)
            elif each.kind == "fragment_spread" and each.name.value not in seen:
                seen.add(each.name.value)
                fragment = self._fragments[each.name.value]
                if fragment.variable_signatures or fragment.definition.directives:
                    raise NotCompilable
                self._refuse_directives(fragment.definition.selection_set, seen)


class _Source:
    """The text of the generated functions, and the values that the text refers to by name."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"Unexpected": Unexpected, "datetime": datetime}
        self._fields = 0

    def value(self, type: Any, nodes: Nodes) -> Read:
        lines = self._convert(type, nodes, "value")
        self._lines += ["def read(value, run):", *_indented(lines), "    return value"]
        return self._function("read")

    def reader(
        self, type: GraphQLObjectType, grouped: dict[str, list[FieldDetails]], *, without: Sequence[str]
    ) -> Read:
        return self._function(self._object(type, grouped, without=without))

    def is_plain(self, type: GraphQLObjectType, group: Nodes) -> bool:
        name = group[0].node.name.value
        if name == "__typename":
            return True
        try:
            _Source(self._compiler)._field(type, "value", "name", group)
        except NotCompilable:
            return False
        return True

    def _function(self, name: str) -> Read:
        exec(compile("\n".join(self._lines), "<selection>", "exec"), self._names)
        return self._names[name]

    def _convert(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        """Lines that replace the variable's value by its value in the response."""
        if isinstance(type, GraphQLNonNull):
            return self._convert_non_null(_inner(cast("Any", type)), nodes, variable)
        return [f"if {variable} is not None:", *_indented(self._convert_non_null(type, nodes, variable))]

    def _convert_non_null(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        """The same for a value that is not null; the lines raise if it is None."""
        if isinstance(type, GraphQLList):
            return self._list(type, nodes, variable)
        if is_leaf_type(type):
            return self._leaf(type, variable)
        if is_abstract_type(type):
            return self._abstract(type, nodes, variable)
        if isinstance(type, GraphQLObjectType):
            return [f"{variable} = {self._object(type, self._compiler.fields(type, nodes))}({variable}, run)"]
        raise NotCompilable

    def _list(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        item = self._item(type.of_type, nodes)
        return [
            f"if {variable}.__class__ is not list and {variable}.__class__ is not tuple: raise Unexpected",
            f"{variable} = [{item}(each, run) for each in {variable}]",
        ]

    def _item(self, type: Any, nodes: Nodes) -> str:
        """The name of the function that converts one item."""
        inner = _inner(cast("Any", type)) if isinstance(type, GraphQLNonNull) else None
        if isinstance(inner, GraphQLObjectType):
            return self._object(inner, self._compiler.fields(inner, nodes))
        item = self._named("item", None)
        lines = self._convert(type, nodes, "item")
        self._lines += [f"def {item}(item, run):", *_indented(lines), "    return item"]
        return item

    def _leaf(self, type: Any, variable: str) -> list[str]:
        """The usual Python class of a scalar is converted in place, every other value by the scalar itself."""
        coerce = self._named("coerce", coercer_of(type))
        otherwise = f"{variable} = {coerce}({variable})"
        if isinstance(type, GraphQLEnumType):
            members = getattr(type, "wrapped_cls", None)
            if members is None:
                return [otherwise]
            names = self._named("names", {each: type.coerce_output_value(each) for each in members})
            return [f"{variable} = {names}.get({variable}) or {coerce}({variable})"]
        match type.name:
            case "String" | "ID":
                return [f"if {variable}.__class__ is not str: {otherwise}"]
            case "Boolean":
                return [f"if {variable} is not True and {variable} is not False: {otherwise}"]
            case "Int":
                is_small = f"-2147483648 <= {variable} <= 2147483647"
                return [f"if {variable}.__class__ is not int or not {is_small}: {otherwise}"]
            case "DateTime" if is_iso(type):
                return [f"if {variable}.__class__ is not datetime: {otherwise}"]  # orjson writes it as isoformat() does
            case _:
                return [otherwise]

    def _abstract(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        """Chooses the reader by the value's class. A possible type that is not compilable has no reader."""
        readers: dict[Any, str] = {}
        for each in self._compiler.possible(type):
            try:
                reader = self._object(each, self._compiler.fields(each, nodes))
                readers |= dict.fromkeys(classes_of(each), reader)
            except NotCompilable:
                continue
        table = self._named("readers", None)
        entries = ", ".join(f"{self._named('kind', kind)}: {reader}" for kind, reader in readers.items())
        self._lines.append(f"{table} = {{{entries}}}")
        return [f"{variable} = {table}[{variable}.__class__]({variable}, run)"]

    def _object(
        self, type: GraphQLObjectType, grouped: dict[str, list[FieldDetails]], *, without: Sequence[str] = ()
    ) -> str:
        function = self._named("object", None)
        self._fields += len(grouped)
        if self._fields > MAX_FIELDS:
            raise NotCompilable
        read: dict[str, str] = {}  # variable -> attribute
        convert: list[str] = []
        parts: list[str] = []
        loads: list[str] = []
        for number, (response_name, group) in enumerate(grouped.items()):
            variable = f"v{number}"
            if response_name in without:
                parts.append(f"{response_name!r}: None")
            elif group[0].node.name.value == "__typename":
                parts.append(f"{response_name!r}: {type.name!r}")
            else:
                field = self._field(type, variable, response_name, group)
                if field.attribute is not None:
                    read[variable] = field.attribute
                convert += field.convert
                loads += field.load
                parts.append(f"{response_name!r}: {'None' if field.load else variable}")
        result = f"{{{', '.join(parts)}}}"
        end = [f"result = {result}", *loads, "return result"] if loads else [f"return {result}"]
        body = [*self._read(classes_of(type), read), *convert, *end]
        self._lines += [f"def {function}(source, run):", *_indented(body)]
        return function

    def _field(self, type: GraphQLObjectType, variable: str, response_name: str, group: Nodes) -> "_Field":
        """How a field is read: from an attribute, by its resolver, or by a loader."""
        definition: Any = self._compiler.field(type, group[0].node.name.value)
        field = None if definition is None else definition.extensions.get(DEFINITION)
        if definition is None or not isinstance(field, StrawberryField):
            raise NotCompilable
        loaded = field.metadata.get(LOADED)
        if loaded is not None:
            read = _Source(self._compiler).value(definition.type, group)
            name = self._named("loaded", LoadedField(response_name, loaded, read, definition, group[0].node))
            key = self._named("key", loaded.key)
            return _Field(load=[f"run[{name}].append(({key}(source), result))"])
        if definition.args:
            raise NotCompilable
        convert = self._convert(definition.type, group, variable)
        resolver = simple_resolver(field)
        if resolver is not None:
            return _Field(convert=[f"{variable} = {self._named('resolver', resolver)}(source)", *convert])
        return _Field(attribute=attribute_of(field), convert=convert)

    def _read(self, classes: Sequence[Any], attributes: dict[str, str]) -> list[str]:
        """Lines that put the attributes into variables, by the class of `source`."""
        lines: list[str] = []
        for each in classes:
            of_row: frozenset[str] = getattr(each, "row_fields", frozenset())
            made: dict[str, Any] = getattr(each, "made_fields", {})
            read: list[str] = []
            for variable, name in attributes.items():
                if name in made:
                    read.append(f"{variable} = {self._named('make', made[name])}(row, source.seen_at, source.at)")
                else:
                    read.append(f"{variable} = {'row' if name in of_row else 'source'}.{name}")
            lines += [
                f"{'elif' if lines else 'if'} source.__class__ is {self._named('kind', each)}:",
                *_indented(["row = source.row", *read] if of_row else read or ["pass"]),
            ]
        return [*lines, "else: raise Unexpected"]

    def _named(self, kind: str, value: Any) -> str:
        name = f"{kind}{len(self._names)}"
        self._names[name] = value
        return name


@dataclass(frozen=True, slots=True)
class _Field:
    """`convert` are lines that follow the reading of the attributes, `load` lines that follow the object's result."""

    attribute: str | None = None
    convert: list[str] = field(default_factory=list[str])
    load: list[str] = field(default_factory=list[str])


def _inner(type: Any) -> Any:
    return type.of_type


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _NoVariables:
    """Stands for the operation's variables: a selection that needs one can't be compiled."""

    def __getattr__(self, name: str) -> Any:
        raise NotCompilable


_NO_VARIABLES: Any = _NoVariables()
