"""Finds the broadcast for a subscription, or creates it."""

from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import orjson
from strawberry import Schema

from schema import ids
from schema.context import Context, Services
from server.auth.caller import Caller
from server.auth.token_limits import TokenLimits
from server.enums import Role
from server.graphql.documents.document import Document, Operation
from server.graphql.live.broadcast import Broadcast
from server.graphql.live.results import ResultEncoder
from server.graphql.live.source import SubscriptionExecution, begin_subscription
from server.graphql.live.subscriber import Subscriber
from server.graphql.live.turns import Turns
from server.graphql.request import Request
from server.observe import http_requests

# The request, the project and role of the caller, and its token if it sees only its own instances: an execution may
# depend on nothing else.
Key = tuple[tuple[str, str | None, bytes], UUID, Role, UUID | None]


class Broadcasts:
    """All broadcasts of a process."""

    def __init__(self, schema: Schema, services: Services) -> None:
        self._schema = schema
        self._services = services
        self._broadcasts: dict[Key, Broadcast] = {}
        self.turns = Turns()

    def __len__(self) -> int:
        return len(self._broadcasts)

    @property
    def subscribers(self) -> int:
        return sum(len(broadcast) for broadcast in self._broadcasts.values())

    async def join(
        self,
        subscriber: Subscriber,
        request: Request,
        document: Document,
        caller: Caller,
        *,
        resume_at: str | None = None,
    ) -> None:
        """Add a subscriber; raises InvalidVariables or Refused when the subscription can't start.

        `resume_at` is the SSE client's Last-Event-ID and takes precedence over the cursor in the request.
        """
        operation = document.operation(request.operation_name)
        http_requests.classify_request(operation.kind.value, operation.fields)
        key = (_request_key(document, operation, request), caller.project_id, caller.role, caller.owner_id)
        broadcast = self._running(key)
        cursor = request.variables.get(operation.after) if operation.after is not None else None
        if broadcast is None or not operation.is_plain or not (cursor is None or isinstance(cursor, str)):
            context = self._context(caller)
            execution = await begin_subscription(self._schema, document, request, context)
            after = execution.feed.after
            # Another request may have created it meanwhile.
            broadcast = self._running(key) or self._create(key, execution, context)
        else:
            after = None if cursor is None else self._services.cursors.parse(cursor)
        if resume_at is not None and broadcast.takes_cursor:
            after = self._services.cursors.parse(resume_at)
        if not subscriber.is_over:
            broadcast.join(subscriber, after)

    def _running(self, key: Key) -> Broadcast | None:
        broadcast = self._broadcasts.get(key)
        return None if broadcast is None or broadcast.is_over else broadcast

    def _create(self, key: Key, execution: SubscriptionExecution, context: Context) -> Broadcast:
        def forget() -> None:
            if self._broadcasts.get(key) is broadcast:
                del self._broadcasts[key]

        turn = partial(self.turns.take, context.caller.project_id)
        broadcast = Broadcast(execution, ResultEncoder(context.request_id), turn=turn, on_empty=forget)
        self._broadcasts[key] = broadcast
        return broadcast

    def _context(self, caller: Caller) -> Context:
        """Only what is in the key is taken from the caller, because later subscribers share the execution."""
        context = Context(self._services, request_id=f"sub_{uuid4().hex[:20]}", is_socket=True)
        shared = Caller(project_id=caller.project_id, token_id=ids.UNUSED_ID, role=caller.role)
        if caller.owner_id is not None:
            shared = replace(shared, token_id=caller.owner_id, limits=TokenLimits(own_instances_only=True))
        context.admit(shared)
        return context


def _request_key(document: Document, operation: Operation, request: Request) -> tuple[str, str | None, bytes]:
    """Equal for equal requests, whatever cursor each starts from."""
    variables = request.variables
    if operation.after is not None and operation.after in variables:
        variables = {name: value for name, value in variables.items() if name != operation.after}
    return document.text, request.operation_name, orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)
