"""Keeps validated documents: validation is the largest cost of a small request."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    NoFragmentCyclesRule,
    NoSchemaIntrospectionCustomRule,
    OperationDefinitionNode,
    OperationType,
    OverlappingFieldsCanBeMergedRule,
    VariableNode,
    Visitor,
    parse,
    specified_rules,
    validate,
    visit,
)
from strawberry.schema.validation_rules.maybe_null import MaybeNullValidationRule
from strawberry.schema.validation_rules.one_of import OneOfInputValidationRule

from server.config import Settings
from server.errors import StartupProblem
from server.graphql.documents.cost import Cost, assumed_for
from server.graphql.documents.document import Document, Operation
from server.graphql.documents.limits import Cycle, DocumentLimits, check_size, too_much
from server.graphql.documents.overlapping_fields import TooComplex, check_overlap
from server.graphql.documents.persisted import ApqCache, hash_of, read_persisted
from server.graphql.documents.rules import combined
from server.graphql.request import Request

MAX_WEIGHT = 50_000  # tokens of all kept documents, about 0.6 KB each; 100 characters count as one token
MAX_ERRORS = 20
RULES = (
    # This rule takes quadratic time; overlapping_fields.py does the same check.
    *(rule for rule in specified_rules if rule is not OverlappingFieldsCanBeMergedRule),
    MaybeNullValidationRule,
    OneOfInputValidationRule,
)


def shows_suggestions(settings: Settings) -> bool:
    """Suggestions would tell the names that introspection hides."""
    return settings.suggestions and settings.introspection


class DocumentStore:
    """The documents of a process, shared by all transports."""

    def __init__(
        self,
        schema: GraphQLSchema,
        limits: DocumentLimits | None = None,
        *,
        has_introspection: bool = True,
        has_suggestions: bool = True,
        persisted: Path | None = None,
        is_closed: bool = False,
    ) -> None:
        """`is_closed`: only persisted documents are accepted. Raises StartupProblem if one of these is not valid."""
        self.limits = limits or DocumentLimits()
        self._schema = schema
        self._rules = [combined(RULES if has_introspection else (*RULES, NoSchemaIntrospectionCustomRule))]
        self._hides_suggestions = not has_suggestions
        self._assumed = assumed_for(schema)
        self._documents: OrderedDict[str, Document] = OrderedDict()
        self._weight = 0
        self._apq = ApqCache()
        self.checked = 0  # documents, since the start
        self._is_closed = is_closed
        self._persisted = self._load_persisted(persisted) if persisted is not None else {}
        if is_closed and not self._persisted:
            raise StartupProblem("PERSISTED_ONLY is on, but PERSISTED_DOCUMENTS names none.")

    @classmethod
    def of(cls, schema: GraphQLSchema, settings: Settings) -> "DocumentStore":
        return cls(
            schema,
            DocumentLimits.of(settings),
            has_introspection=settings.introspection,
            has_suggestions=shows_suggestions(settings),
            persisted=settings.persisted_documents,
            is_closed=settings.persisted_only,
        )

    def __len__(self) -> int:
        return len(self._documents)

    def find(self, request: Request) -> Document | list[GraphQLError]:
        """The document of the request's text or hash, or the errors."""
        text, hash = request.query, request.hash
        if self._is_closed:
            document = self._persisted.get(hash_of(text) if text else hash or "")
            return [_not_allowed()] if document is None else document
        if hash is None:
            return self.read(text)
        if not text:
            persisted = self._persisted.get(hash)
            if persisted is not None:
                return persisted
            kept = self._apq.find(hash)
            return [_not_found()] if kept is None else self.read(kept)
        if hash_of(text) != hash:
            return [_mismatch()]
        document = self.read(text)
        if isinstance(document, Document):
            self._apq.keep(hash, text)
        return document

    def read(self, text: str) -> Document | list[GraphQLError]:
        kept = self._documents.get(text)
        if kept is not None:
            self._documents.move_to_end(text)
            return kept
        document = self._parse(text)
        if isinstance(document, Document):
            self._documents[text] = document
            self._weight += _weight(document)
            while self._weight > MAX_WEIGHT:
                _, oldest = self._documents.popitem(last=False)
                self._weight -= _weight(oldest)
        return document

    def _parse(self, text: str) -> Document | list[GraphQLError]:
        self.checked += 1
        limits = self.limits
        if len(text) > limits.characters:
            return [too_much("characters", "QUERY_MAX_CHARACTERS", limits.characters, len(text))]
        try:
            node = _parsed(text, limits)
            errors = self._problems(node)
        except GraphQLError as error:
            return [error]
        except RecursionError:
            return [too_much("levels of fields", "QUERY_MAX_DEPTH", limits.depth)]
        if errors:
            return errors
        document = Document(text, node)
        for each in node.definitions:
            if isinstance(each, OperationDefinitionNode):
                cost = Cost(self._schema, self._assumed, node, each)
                document.operations[each.name.value if each.name else None] = _operation(node, each, cost)
        return document

    def _problems(self, node: DocumentNode) -> list[GraphQLError]:
        """Limits come first, so that the other checks can't be made slow on purpose."""
        try:
            too_large = check_size(node, self.limits)
        except Cycle:
            return validate(self._schema, node, [NoFragmentCyclesRule], max_errors=MAX_ERRORS)
        if too_large is not None:
            return [too_large]
        errors = validate(
            self._schema, node, self._rules, max_errors=MAX_ERRORS, hide_suggestions=self._hides_suggestions
        )
        if errors:
            return errors
        try:
            conflict = check_overlap(self._schema, node, self.limits.fields)
        except TooComplex:
            conflict = too_much("fields with its fragments spread", "QUERY_MAX_FIELDS", self.limits.fields)
        return [] if conflict is None else [conflict]

    def _load_persisted(self, path: Path) -> dict[str, Document]:
        documents: dict[str, Document] = {}
        problems: list[str] = []
        for hash, text in read_persisted(path).items():
            document = self._parse(text)
            if isinstance(document, Document):
                documents[hash] = document
            else:
                problems.append(f"  {' '.join(text.split())[:60]}: {document[0].message}")
        if problems:
            raise StartupProblem("these documents of PERSISTED_DOCUMENTS are not valid:\n" + "\n".join(problems))
        return documents


def _weight(document: Document) -> int:
    return (document.node.token_count or 0) + len(document.text) // 100


def _parsed(text: str, limits: DocumentLimits) -> DocumentNode:
    try:
        return parse(text, max_tokens=limits.tokens)
    except GraphQLError as error:
        if "Document contains more than" in error.message:
            raise too_much("tokens", "QUERY_MAX_TOKENS", limits.tokens) from None
        raise


def _operation(document: DocumentNode, node: OperationDefinitionNode, cost: Cost) -> Operation:
    root = node.selection_set.selections[0] if node.selection_set.selections else None
    if node.operation is not OperationType.SUBSCRIPTION or not isinstance(root, FieldNode):
        return Operation(node, cost, after=None, is_plain=False)
    cursor = next((argument.value for argument in root.arguments or () if argument.name.value == "after"), None)
    if cursor is None:
        return Operation(node, cost, after=None, is_plain=True)
    after = _used_once(cursor.name.value, document, node) if isinstance(cursor, VariableNode) else None
    return Operation(node, cost, after, is_plain=after is not None)


def _used_once(name: str, document: DocumentNode, node: OperationDefinitionNode) -> str | None:
    declared = next(each for each in node.variable_definitions or () if each.variable.name.value == name)
    uses = _Uses(name)
    visit(document, uses)
    return name if uses.count == 2 and declared.default_value is None else None


class _Uses(Visitor):
    """Counts a variable: its declaration and every use."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.count = 0

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        if node.name.value == self._name:
            self.count += 1


def _not_found() -> GraphQLError:
    # Clients recognise exactly this message and then send the text.
    return GraphQLError("PersistedQueryNotFound", extensions={"code": "PERSISTED_QUERY_NOT_FOUND", "retryable": True})


def _mismatch() -> GraphQLError:
    message = "The hash does not match the text."
    return GraphQLError(message, extensions={"code": "PERSISTED_QUERY_HASH_MISMATCH", "retryable": False})


def _not_allowed() -> GraphQLError:
    message = "This server only executes persisted documents."
    return GraphQLError(message, extensions={"code": "DOCUMENT_NOT_ALLOWED", "retryable": False})
