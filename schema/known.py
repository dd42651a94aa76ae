"""Documents that were read and checked before are not read and checked again: that is a third of a small request."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar

from graphql import DocumentNode
from strawberry.extensions import SchemaExtension

MOST_DOCUMENTS = 1_000
LONGEST_DOCUMENT = 10_000  # characters; clients send the same few, and what is longer is somebody's own affair


class KnownDocuments(SchemaExtension):
    """Remembers valid documents by their text, for queries and mutations over HTTP."""

    _known: ClassVar[OrderedDict[str, DocumentNode]] = OrderedDict()

    def on_parse(self) -> Iterator[None]:
        context = self.execution_context
        document = self._known.get(context.query or "")
        if document is not None and context.graphql_document is None:
            self._known.move_to_end(context.query or "")
            context.graphql_document = document
        yield

    def on_validate(self) -> Iterator[None]:
        context = self.execution_context
        text, document = context.query or "", context.graphql_document
        if document is not None and self._known.get(text) is document:
            context.pre_execution_errors = []  # checked before, and found to be right
        yield
        if document is not None and not context.pre_execution_errors and len(text) <= LONGEST_DOCUMENT:
            self._known[text] = document
            if len(self._known) > MOST_DOCUMENTS:
                self._known.popitem(last=False)
