"""Documents read and checked once, however many send them: checking is the largest cost of a small request."""

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

from schema.documents.cost import Cost, assumed_for
from schema.documents.document import Document, Operation
from schema.documents.limits import Limits, too_much
from schema.documents.overlap import Tangled, check_overlap
from schema.documents.persisted import Learned, hash_of, read_persisted
from schema.documents.request import Request
from schema.documents.size import Cycle, check_size
from server.config import Settings
from server.errors import StartupProblem

MOST_KEPT = 50_000  # tokens of all documents that are kept, some 0.6 KB each; a hundred characters count as one
MOST_ERRORS = 20
RULES = (
    # The first takes time that grows with the square of what is repeated: overlap.py does its work.
    *(rule for rule in specified_rules if rule is not OverlappingFieldsCanBeMergedRule),
    MaybeNullValidationRule,
    OneOfInputValidationRule,
)


class Documents:
    """All of a process: what came over HTTP is known over WebSocket, too."""

    def __init__(
        self,
        schema: GraphQLSchema,
        limits: Limits | None = None,
        *,
        has_introspection: bool = True,
        has_suggestions: bool = True,
        persisted: Path | None = None,
        is_closed: bool = False,
    ) -> None:
        """`is_closed`: only what is persisted may be asked for. Raises StartupProblem if any of that is not right."""
        self.limits = limits or Limits()
        self._schema = schema
        self._rules = RULES if has_introspection else (*RULES, NoSchemaIntrospectionCustomRule)
        self._hides_suggestions = not has_suggestions
        self._assumed = assumed_for(schema)
        self._known: OrderedDict[str, Document] = OrderedDict()
        self._weight = 0
        self._learned = Learned()
        self.checked = 0  # documents, since the start
        self._is_closed = is_closed
        self._persisted = self._checked(persisted) if persisted is not None else {}
        if is_closed and not self._persisted:
            raise StartupProblem("PERSISTED_ONLY is on, and PERSISTED_DOCUMENTS names none.")

    @classmethod
    def of(cls, schema: GraphQLSchema, settings: Settings) -> "Documents":
        return cls(
            schema,
            Limits.of(settings),
            has_introspection=settings.introspection,
            has_suggestions=settings.suggestions,
            persisted=settings.persisted_documents,
            is_closed=settings.persisted_only,
        )

    def __len__(self) -> int:
        return len(self._known)

    def find(self, request: Request) -> Document | list[GraphQLError]:
        """The document that was sent or named, or what is wrong with it."""
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
            learned = self._learned.find(hash)
            return [_not_found()] if learned is None else self.read(learned)
        if hash_of(text) != hash:
            return [_mismatch()]
        document = self.read(text)
        if isinstance(document, Document):
            self._learned.keep(hash, text)
        return document

    def read(self, text: str) -> Document | list[GraphQLError]:
        known = self._known.get(text)
        if known is not None:
            self._known.move_to_end(text)
            return known
        document = self._made(text)
        if isinstance(document, Document):
            self._known[text] = document
            self._weight += _weight(document)
            while self._weight > MOST_KEPT:
                _, oldest = self._known.popitem(last=False)
                self._weight -= _weight(oldest)
        return document

    def _made(self, text: str) -> Document | list[GraphQLError]:
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
        """What makes a document cheap to check comes first, so that the checks can't be made to last."""
        try:
            too_large = check_size(node, self.limits)
        except Cycle:
            return validate(self._schema, node, [NoFragmentCyclesRule], max_errors=MOST_ERRORS)
        if too_large is not None:
            return [too_large]
        errors = validate(
            self._schema, node, self._rules, max_errors=MOST_ERRORS, hide_suggestions=self._hides_suggestions
        )
        if errors:
            return errors
        try:
            conflict = check_overlap(self._schema, node, self.limits.fields)
        except Tangled:
            conflict = too_much("fields with its fragments spread", "QUERY_MAX_FIELDS", self.limits.fields)
        return [] if conflict is None else [conflict]

    def _checked(self, path: Path) -> dict[str, Document]:
        found: dict[str, Document] = {}
        problems: list[str] = []
        for hash, text in read_persisted(path).items():
            document = self._made(text)
            if isinstance(document, Document):
                found[hash] = document
            else:
                problems.append(f"  {' '.join(text.split())[:60]}: {document[0].message}")
        if problems:
            raise StartupProblem("these documents of PERSISTED_DOCUMENTS are not right:\n" + "\n".join(problems))
        return found


def _weight(document: Document) -> int:
    return (document.node.token_count or 0) + len(document.text) // 100


def _parsed(text: str, limits: Limits) -> DocumentNode:
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
    given = next((argument.value for argument in root.arguments or () if argument.name.value == "after"), None)
    if given is None:
        return Operation(node, cost, after=None, is_plain=True)
    after = _used_once(given.name.value, document, node) if isinstance(given, VariableNode) else None
    return Operation(node, cost, after, is_plain=after is not None)


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


def _not_found() -> GraphQLError:
    # Clients know it by exactly this message, and send the text next.
    return GraphQLError("PersistedQueryNotFound", extensions={"code": "PERSISTED_QUERY_NOT_FOUND", "retryable": True})


def _mismatch() -> GraphQLError:
    message = "The hash is not that of the text."
    return GraphQLError(message, extensions={"code": "PERSISTED_QUERY_HASH_MISMATCH", "retryable": False})


def _not_allowed() -> GraphQLError:
    message = "This server answers only the documents that it was started with."
    return GraphQLError(message, extensions={"code": "DOCUMENT_NOT_ALLOWED", "retryable": False})
