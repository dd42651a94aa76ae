"""Documents read and checked once, however many send them. Checking is the largest cost of a new subscription."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import orjson
from graphql import (
    DocumentNode,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    OperationDefinitionNode,
    OperationType,
    VariableNode,
    Visitor,
    parse,
    validate,
    visit,
)

from schema.live.messages import Request

MOST_CHARACTERS = 4 * 1024 * 1024  # of all texts that are kept
MOST_TOKENS = 2_000  # checking grows with the square of what is repeated; an introspection has some 400
MOST_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a document.

    `after` names the variable that only tells where to begin, if there is one. `is_plain`: nothing else does.
    """

    node: OperationDefinitionNode
    after: str | None
    is_plain: bool

    @property
    def kind(self) -> OperationType:
        return self.node.operation


@dataclass(frozen=True, slots=True)
class Document:
    """A document that is valid."""

    text: str
    node: DocumentNode
    operations: dict[str | None, Operation] = field(default_factory=dict[str | None, Operation])

    def operation(self, name: str | None) -> Operation:
        """Raises GraphQLError when it has none of that name, or several and no name was given."""
        if name is None:
            if len(self.operations) != 1:
                raise GraphQLError("The document has several operations: say which with operationName.")
            return next(iter(self.operations.values()))
        try:
            return self.operations[name]
        except KeyError:
            raise GraphQLError("The document has no operation of that name.") from None

    def key(self, request: Request) -> tuple[str, str | None, bytes]:
        """Equal for requests that ask for the same, wherever each of them wants to begin."""
        after = self.operation(request.operation_name).after
        variables = request.variables
        if after is not None and after in variables:
            variables = {name: value for name, value in variables.items() if name != after}
        return self.text, request.operation_name, orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)


class Documents:
    """The newest ones, up to so many characters."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema
        self._known: OrderedDict[str, Document] = OrderedDict()
        self._characters = 0

    def read(self, text: str) -> Document | list[GraphQLError]:
        """The document, or what is wrong with it."""
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        try:
            node = parse(text, max_tokens=MOST_TOKENS)
        except GraphQLError as error:
            return [error]
        errors = validate(self._schema, node, max_errors=MOST_ERRORS)
        if errors:
            return errors
        document = Document(text, node)
        for each in node.definitions:
            if isinstance(each, OperationDefinitionNode):
                document.operations[each.name.value if each.name else None] = _operation(node, each)
        self._keep(text, document)
        return document

    def __len__(self) -> int:
        return len(self._known)

    def _keep(self, text: str, document: Document) -> None:
        self._known[text] = document
        self._characters += len(text)
        while self._characters > MOST_CHARACTERS:
            oldest, _ = self._known.popitem(last=False)
            self._characters -= len(oldest)


def _operation(document: DocumentNode, node: OperationDefinitionNode) -> Operation:
    root = node.selection_set.selections[0]
    if node.operation is not OperationType.SUBSCRIPTION or not isinstance(root, FieldNode):
        return Operation(node, after=None, is_plain=False)
    given = next((argument.value for argument in root.arguments or () if argument.name.value == "after"), None)
    if given is None:
        return Operation(node, after=None, is_plain=True)
    after = _used_once(given.name.value, document, node) if isinstance(given, VariableNode) else None
    return Operation(node, after, is_plain=after is not None)


def _used_once(name: str, document: DocumentNode, node: OperationDefinitionNode) -> str | None:
    declared = next(each for each in node.variable_definitions or () if each.variable.name.value == name)
    uses = _Uses(name)
    visit(document, uses)
    return name if uses.count == 2 and declared.default_value is None else None


class _Uses(Visitor):
    """Counts a variable: once where it is declared, and wherever it is used."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.count = 0

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        if node.name.value == self._name:
            self.count += 1
