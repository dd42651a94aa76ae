"""The field extension that puts every call of a mutation into the audit log."""

from typing import Any

from graphql import GraphQLError
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension

from schema import ids
from schema.context import Info
from schema.error_masking import error_code
from server.audit.record import AuditRecord, running
from server.enums import AuditOutcome
from server.errors import NotFound


class Audited(FieldExtension):
    """Around all other extensions, so that refusals for a missing role are recorded, too."""

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:  # type: ignore[override]
        context = info.context
        audit = context.services.audit
        record = AuditRecord(
            project_id=context.caller.project_id,
            token_id=context.caller.token_id,
            request_id=context.request_id,
            mutation=info.field_name,
            input_digest=audit.digest(kwargs),
            target=_target(kwargs.get("input")),
        )
        with running(record):
            try:
                payload = await next_(source, info, **kwargs)
            except Exception as error:
                is_refused = isinstance(error, GraphQLError)
                record.outcome = AuditOutcome.REFUSED if is_refused else AuditOutcome.FAILED
                record.error_code = error_code(error)
                await audit.finish(record)
                raise
        refusal = _refusal(payload)
        if refusal is not None:
            record.outcome, record.error_code = AuditOutcome.REFUSED, refusal
        elif getattr(kwargs.get("input"), "validate_only", False):
            record.outcome = AuditOutcome.VALIDATED
        await audit.finish(record)
        return payload


def _refusal(payload: Any) -> str | None:
    """The code of a refusal. A bulk request is refused if all of its items are."""
    results: list[Any] = getattr(payload, "results", [])
    if payload.errors:
        return payload.errors[0].code
    if results and all(each.errors for each in results):
        return results[0].errors[0].code
    return None


def _target(input: Any) -> str | None:
    """The id in the input, if it is one: anything else may be a secret in the wrong field."""
    id = getattr(input, "id", None)
    if not isinstance(id, str):
        id = getattr(getattr(input, "instance", None), "id", None)
    if not isinstance(id, str):
        return None
    prefix = id.partition("_")[0]
    try:
        return ids.format_id(prefix, ids.parse(prefix, id)) if prefix in ids.NOUNS else None
    except NotFound:
        return None
