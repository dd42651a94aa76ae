"""A parsed and validated document, and its operations."""

from dataclasses import dataclass, field

from graphql import DocumentNode, FieldNode, GraphQLError, OperationDefinitionNode, OperationType

from server.graphql.documents.cost import Cost


@dataclass(slots=True, eq=False)
class Operation:
    """One operation of a document.

    `after` is the variable whose only use is the cursor that a subscription starts after. `is_plain`: a subscription
    that has such a variable or no cursor at all. `plan` belongs to the executor: what it compiled for this operation.
    `selections` belongs to `schema.selection`: the names below a field, by the id of its node.
    """

    node: OperationDefinitionNode
    cost: Cost
    after: str | None
    is_plain: bool
    was_executed: bool = False
    plan: object | None = None
    selections: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    fields: list[str] = field(init=False)  # names of its root fields, without those of fragments

    def __post_init__(self) -> None:
        self.fields = [each.name.value for each in self.node.selection_set.selections if isinstance(each, FieldNode)]

    @property
    def kind(self) -> OperationType:
        return self.node.operation

    @property
    def name(self) -> str | None:
        return None if self.node.name is None else self.node.name.value


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A valid document. The store keeps one for each text."""

    text: str
    node: DocumentNode
    operations: dict[str | None, Operation] = field(default_factory=dict[str | None, Operation])

    def operation(self, name: str | None) -> Operation:
        """Raises GraphQLError if there is none of that name, or if there are several and no name was given."""
        if name is None:
            if not self.operations:
                raise GraphQLError("The document has no operation.")
            if len(self.operations) > 1:
                raise GraphQLError("The document has several operations: say which with operationName.")
            return next(iter(self.operations.values()))
        try:
            return self.operations[name]
        except KeyError:
            raise GraphQLError("The document has no operation of that name.") from None
