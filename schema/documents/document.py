"""A document that was read and checked, and its operations."""

from dataclasses import dataclass, field

from graphql import DocumentNode, FieldNode, GraphQLError, OperationDefinitionNode, OperationType

from schema.documents.cost import Cost


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Operation:
    """One operation of a document. It is itself, so that what is made out of it can be kept beside it.

    `after` names the variable that only tells where to begin, if there is one. `is_plain`: nothing else does.
    """

    node: OperationDefinitionNode
    cost: Cost
    after: str | None
    is_plain: bool

    @property
    def kind(self) -> OperationType:
        return self.node.operation

    @property
    def name(self) -> str | None:
        return None if self.node.name is None else self.node.name.value

    @property
    def fields(self) -> list[str]:
        """What it asks for at its root, by the schema's names; what comes from fragments is left out."""
        return [each.name.value for each in self.node.selection_set.selections if isinstance(each, FieldNode)]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Document:
    """A document that is valid. There is one for each text, as long as it is kept."""

    text: str
    node: DocumentNode
    operations: dict[str | None, Operation] = field(default_factory=dict[str | None, Operation])

    def operation(self, name: str | None) -> Operation:
        """Raises GraphQLError when it has none of that name, or several and no name was given."""
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
