"""Finding the cohort for a subscription, or founding it."""

from uuid import UUID, uuid4

import orjson
from strawberry import Schema

from schema import ids
from schema.context import Context, Services
from schema.documents.document import Document, Operation
from schema.documents.request import Request
from schema.live.cohort import Cohort
from schema.live.execution import Execution, begin
from schema.live.member import Member
from schema.live.results import Results
from server.auth.caller import Caller
from server.events.cursor import Cursor
from server.observe import requests
from server.words import Role

# What was asked, and on whose behalf: a project and a role, which is all that an execution may depend on.
Key = tuple[tuple[str, str | None, bytes], UUID, Role]


class Cohorts:
    """All of a process."""

    def __init__(self, schema: Schema, services: Services) -> None:
        self._schema = schema
        self._services = services
        self._cohorts: dict[Key, Cohort] = {}

    def __len__(self) -> int:
        return len(self._cohorts)

    @property
    def members(self) -> int:
        return sum(len(cohort) for cohort in self._cohorts.values())

    async def join(
        self, member: Member, request: Request, document: Document, caller: Caller, *, resume_at: str | None = None
    ) -> None:
        """Bring a member in; raises Unfit or Refused when the subscription can't begin.

        `resume_at` is the place that a client remembered by itself, and goes before the one in the request.
        """
        operation = document.operation(request.operation_name)
        requests.carries(operation.kind.value, operation.fields)
        key = (_asked(document, operation, request), caller.project_id, caller.role)
        cohort = self._running(key)
        given = request.variables.get(operation.after) if operation.after is not None else None
        if cohort is None or not operation.is_plain or not (given is None or isinstance(given, str)):
            context = self._context(caller)
            execution = await begin(self._schema, document, request, context)
            after = execution.feed.after
            # Another may have founded it while a resolver waited for something.
            cohort = self._running(key) or self._found(key, execution, context)
        else:
            after = None if given is None else Cursor.parse(given)
        if resume_at is not None and cohort.takes_cursor:
            after = Cursor.parse(resume_at)
        if not member.is_over:
            cohort.join(member, after)

    def _running(self, key: Key) -> Cohort | None:
        cohort = self._cohorts.get(key)
        return None if cohort is None or cohort.is_over else cohort

    def _found(self, key: Key, execution: Execution, context: Context) -> Cohort:
        def forget() -> None:
            if self._cohorts.get(key) is cohort:
                del self._cohorts[key]

        cohort = Cohort(execution, Results(context.request_id), on_empty=forget)
        self._cohorts[key] = cohort
        return cohort

    def _context(self, caller: Caller) -> Context:
        """Of the caller only what is in the key: whoever comes later gets the same answers."""
        context = Context(self._services, request_id=f"sub_{uuid4().hex[:20]}", is_socket=True)
        context.admit(Caller(project_id=caller.project_id, token_id=ids.NOBODY, role=caller.role))
        return context


def _asked(document: Document, operation: Operation, request: Request) -> tuple[str, str | None, bytes]:
    """Equal for requests that ask for the same, wherever each of them wants to begin."""
    variables = request.variables
    if operation.after is not None and operation.after in variables:
        variables = {name: value for name, value in variables.items() if name != operation.after}
    return document.text, request.operation_name, orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)
