"""Compiled selections: for a type and what is selected of it, one function that reads attributes into the answer.

Only where every field is plain, that is an attribute of a class of ours. The function raises at whatever it does not
expect (another class, a null where none may be, a value that a scalar refuses, something to be awaited); then the
library takes over from the beginning, so that errors and nulls are exactly its own. Reading twice does no harm: plain
fields have no effects.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from graphql import (
    GraphQLEnumType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    Undefined,
    is_abstract_type,
    is_leaf_type,
)
from graphql.execution.collect_fields import FieldDetails, FragmentDetails, collect_subfields
from strawberry.execution import optimized_is_awaitable
from strawberry.types.field import StrawberryField

from schema.execution.known import keep

DEFINITION = "strawberry-definition"  # where Strawberry keeps its own description of a type or a field
MOST_FIELDS = 500  # of one function; what is longer is nobody's everyday question

# Classes that may come in the place of a type's own, and have its attributes.
STAND_INS: dict[type, tuple[type, ...]] = {}
# Of such a class, the attributes that depend on nothing but its `row`, which has a place for what was `shown` of it.
LASTING: dict[type, frozenset[str]] = {}

Read = Callable[[Any], Any]
Nodes = Sequence[FieldDetails]


class Shared(list[Any]):
    """Stand-ins of rows that were read together: what was made of all of them has its place in `shown`."""

    __slots__ = ("shown",)

    def __init__(self, items: Sequence[Any], shown: dict[object, Any]) -> None:
        super().__init__(items)
        self.shown = shown


class Odd(Exception):
    """Something that the compiled function does not expect."""


class NotPlain(Exception):
    """The selection has a field with a resolver, a directive, or a type that is not ours."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """An object of which some fields are plain: `read` gives those, the others have None in their places."""

    read: Read
    others: tuple[str, ...]


class Compiler:
    """For one operation of a document: nothing here depends on variables, so directives are not plain."""

    def __init__(self, schema: GraphQLSchema, fragments: dict[str, FragmentDetails], operation: Any) -> None:
        self._schema = schema
        self._fragments = fragments
        self._operation = operation

    def value(self, type: Any, nodes: Nodes) -> Read | None:
        """A function from what a resolver gave to what the answer holds; None where that needs the library."""
        try:
            return _Source(self).value(type, nodes)
        except NotPlain:
            return None

    def mixed(self, type: GraphQLObjectType, nodes: Nodes) -> Mixed | None:
        """The plain fields of an object that has others, too; None where too little would be won."""
        try:
            grouped = self.fields(type, nodes)
        except NotPlain:
            return None
        source = _Source(self)
        others = tuple(name for name, group in grouped.items() if not source.is_plain(type, group))
        if len(grouped) - len(others) < 2:
            return None
        return Mixed(source.reader(type, grouped, without=others), others)

    def fields(self, type: GraphQLObjectType, nodes: Nodes) -> dict[str, list[FieldDetails]]:
        """What is selected of an object, by the names it has in the answer."""
        if any(each.fragment_variable_values or each.defer_usage for each in nodes):
            raise NotPlain
        for each in nodes:
            self._refuse_directives(each.node.selection_set, set())
        collected = collect_subfields(
            self._schema, self._fragments, _NO_VARIABLES, self._operation, type, list(nodes), True
        )
        if collected.new_defer_usages:
            raise NotPlain
        return dict(collected.grouped_field_set)

    def field(self, type: GraphQLObjectType, name: str) -> Any:
        return self._schema.get_field(type, name)

    def possible(self, type: Any) -> Sequence[GraphQLObjectType]:
        return self._schema.get_possible_types(type)

    def _refuse_directives(self, selections: Any, seen: set[str]) -> None:
        """On this level; deeper ones are looked at in their turn."""
        for each in () if selections is None else selections.selections:
            if each.directives:
                raise NotPlain
            if each.kind == "inline_fragment":
                self._refuse_directives(each.selection_set, seen)
            elif each.kind == "fragment_spread" and each.name.value not in seen:
                seen.add(each.name.value)
                fragment = self._fragments[each.name.value]
                if fragment.variable_signatures or fragment.definition.directives:
                    raise NotPlain
                self._refuse_directives(fragment.definition.selection_set, seen)


class _Source:
    """The text of the functions, and the values that it names."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "Odd": Odd,
            "Shared": Shared,
            "datetime": datetime,
            "keep": keep,
        }
        self._lasts: set[str] = set()
        self._fields = 0

    def value(self, type: Any, nodes: Nodes) -> Read:
        expression = self._expression(type, nodes, "value")
        self._lines += ["def read(value):", *_indented(self._careful(expression)), "    return value"]
        return self._made("read")

    def reader(
        self, type: GraphQLObjectType, grouped: dict[str, list[FieldDetails]], *, without: Sequence[str]
    ) -> Read:
        return self._made(self._object(type, grouped, without=without))

    def is_plain(self, type: GraphQLObjectType, group: Nodes) -> bool:
        name = group[0].node.name.value
        if name == "__typename":
            return True
        try:
            _Source(self._compiler)._expression(_plain_field(self._compiler.field(type, name)).type, group, "value")
        except NotPlain:
            return False
        return True

    def _made(self, name: str) -> Read:
        exec(compile("\n".join(self._lines), "<selection>", "exec"), self._names)
        return self._names[name]

    def _expression(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        """Lines that turn the variable's value into what the answer holds."""
        if isinstance(type, GraphQLNonNull):
            return self._present(_inner(cast("Any", type)), nodes, variable)
        return [f"if {variable} is not None:", *_indented(self._present(type, nodes, variable))]

    def _present(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        """The same where it is not null; None must raise."""
        if isinstance(type, GraphQLList):
            return self._list(type, nodes, variable)
        if is_leaf_type(type):
            return self._leaf(type, variable)
        if is_abstract_type(type):
            return self._abstract(type, nodes, variable)
        if isinstance(type, GraphQLObjectType):
            function = self._whole(type, nodes)
            return [f"{variable} = {function}({variable})"]
        raise NotPlain

    def _list(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        item = self._named("item", None)
        lines = self._expression(type.of_type, nodes, "item")
        self._lines += [f"def {item}(item):", *_indented(self._careful(lines)), "    return item"]
        made = f"[{item}(each) for each in {variable}]"
        if any(lines == [f"item = {function}(item)"] for function in self._lasts):
            all_of_them = self._named("all", None)
            self._lines += self._lasting_list(all_of_them, item)
            return [
                f"if {variable}.__class__ is Shared: {variable} = {all_of_them}({variable})",
                f"elif {variable}.__class__ is not list and {variable}.__class__ is not tuple: raise Odd",
                f"else: {variable} = {made} if {variable} else []",
            ]
        return [
            f"if {variable}.__class__ is not list and {variable}.__class__ is not tuple: raise Odd",
            f"{variable} = {made} if {variable} else []",
        ]

    def _lasting_list(self, function: str, item: str) -> list[str]:
        selection = self._named("selection", object())
        return [
            f"def {function}(those):",
            f"    known = those.shown.get({selection})",
            f"    if known is None: known = keep(those.shown, {selection}, [{item}(each) for each in those])",
            "    return known",
        ]

    def _leaf(self, type: Any, variable: str) -> list[str]:
        coerce = self._named("coerce", _careful_leaf(type))
        otherwise = f"{variable} = {coerce}({variable})"
        if isinstance(type, GraphQLEnumType):
            members = getattr(type, "wrapped_cls", None)
            if members is None:
                return [otherwise]
            kind = self._named("kind", members)
            names = self._named("names", {each: type.coerce_output_value(each) for each in members})
            return [f"{variable} = {names}[{variable}] if {variable}.__class__ is {kind} else {coerce}({variable})"]
        match type.name:
            case "String" | "ID":
                return [f"if {variable}.__class__ is not str: {otherwise}"]
            case "Boolean":
                return [f"if {variable} is not True and {variable} is not False: {otherwise}"]
            case "Int":
                is_small = f"-2147483648 <= {variable} <= 2147483647"
                return [f"if {variable}.__class__ is not int or not {is_small}: {otherwise}"]
            case "DateTime" if _is_iso(type):
                iso = f"{variable}.isoformat()"
                return [f"{variable} = {iso} if {variable}.__class__ is datetime else {coerce}({variable})"]
            case _:
                return [otherwise]

    def _abstract(self, type: Any, nodes: Nodes, variable: str) -> list[str]:
        """By the class of what is there. A member of the type that is not plain is odd when it comes."""
        readers: dict[Any, str] = {}
        for each in self._compiler.possible(type):
            try:
                reader = self._whole(each, nodes)
                readers |= dict.fromkeys((_class_of(each), *STAND_INS.get(_class_of(each), ())), reader)
            except NotPlain:
                continue
        table = self._named("readers", None)
        entries = ", ".join(f"{self._named('kind', kind)}: {reader}" for kind, reader in readers.items())
        self._lines.append(f"{table} = {{{entries}}}")
        return [f"{variable} = {table}[{variable}.__class__]({variable})"]

    def _whole(self, type: GraphQLObjectType, nodes: Nodes) -> str:
        """The function for an object of which everything is plain. What lasts is made once."""
        grouped = self._compiler.fields(type, nodes)
        function = self._object(type, grouped)
        names = {group[0].node.name.value for group in grouped.values()} - {"__typename"}
        asked = {_plain_field(self._compiler.field(type, name)).attribute for name in names}
        for each in STAND_INS.get(_class_of(type), ()):
            if asked <= LASTING.get(each, frozenset()):
                function = self._lasting(each, function)
        return function

    def _lasting(self, kind: type, make: str) -> str:
        function, selection = self._named("lasting", None), self._named("selection", object())
        self._lines += [
            f"def {function}(one):",
            f"    if one.__class__ is not {self._named('kind', kind)}: return {make}(one)",
            "    shown = one.row.shown",
            f"    known = shown.get({selection})",
            f"    return keep(shown, {selection}, {make}(one)) if known is None else known",
        ]
        self._lasts.add(function)
        return function

    def _object(
        self, type: GraphQLObjectType, grouped: dict[str, list[FieldDetails]], *, without: Sequence[str] = ()
    ) -> str:
        kinds = [self._named("kind", each) for each in (_class_of(type), *STAND_INS.get(_class_of(type), ()))]
        function = self._named("object", None)
        self._fields += len(grouped)
        if self._fields > MOST_FIELDS:
            raise NotPlain
        body = [f"if {' and '.join(f'one.__class__ is not {kind}' for kind in kinds)}: raise Odd"]
        parts: list[str] = []
        for number, (response_name, group) in enumerate(grouped.items()):
            variable = f"v{number}"
            name = group[0].node.name.value
            if response_name in without:
                parts.append(f"{response_name!r}: None")
            elif name == "__typename":
                parts.append(f"{response_name!r}: {type.name!r}")
            else:
                field = _plain_field(self._compiler.field(type, name))
                body.append(f"{variable} = one.{field.attribute}")
                body += self._expression(field.type, group, variable)
                parts.append(f"{response_name!r}: {variable}")
        self._lines += [f"def {function}(one):", *_indented([*body, f"return {{{', '.join(parts)}}}"])]
        return function

    def _careful(self, lines: list[str]) -> list[str]:
        return lines or ["pass"]

    def _named(self, kind: str, value: Any) -> str:
        name = f"{kind}{len(self._names)}"
        self._names[name] = value
        return name


@dataclass(frozen=True, slots=True)
class _Plain:
    attribute: str
    type: Any


def _inner(type: Any) -> Any:
    return type.of_type


def _plain_field(field: Any) -> _Plain:
    if field is None:
        raise NotPlain
    definition = field.extensions.get(DEFINITION)
    if not isinstance(definition, StrawberryField) or not definition.is_basic_field or field.args:
        raise NotPlain
    if definition.default_resolver is not getattr or not definition.python_name.isidentifier():
        raise NotPlain
    return _Plain(definition.python_name, field.type)


def _class_of(type: GraphQLObjectType) -> Any:
    definition: Any = type.extensions.get(DEFINITION)
    if definition is None or definition.is_type_of is not None or definition.concrete_of is not None:
        raise NotPlain
    return definition.origin


def _is_iso(type: Any) -> bool:
    """Whether the scalar says of a time what Python says of it."""
    moment = datetime(2001, 2, 3, 4, 5, 6, 7)  # noqa: DTZ001 - of any zone, or none
    return type.coerce_output_value(moment) == moment.isoformat()


def _careful_leaf(type: Any) -> Read:
    def coerce(value: Any) -> Any:
        if value is None or isinstance(value, Exception) or optimized_is_awaitable(value):
            raise Odd
        coerced = type.coerce_output_value(value)
        if coerced is None or coerced is Undefined:
            raise Odd
        return coerced

    return coerce


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Nothing:
    """No variables: nothing that is compiled may ask for one."""

    @property
    def coerced(self) -> Any:
        raise NotPlain

    @property
    def sources(self) -> Any:
        raise NotPlain


_NO_VARIABLES: Any = _Nothing()
