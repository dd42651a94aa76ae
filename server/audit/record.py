"""The record of one call of a mutation, and which one is running."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from server.clock import new_id
from server.enums import AuditOutcome

_CURRENT: ContextVar["AuditRecord | None"] = ContextVar("the mutation that is running", default=None)


@dataclass(slots=True)
class AuditRecord:
    """`is_written`: a transaction of the mutation has committed it, as ACCEPTED."""

    project_id: UUID
    token_id: UUID
    request_id: str
    mutation: str
    input_digest: bytes
    target: str | None
    id: UUID = field(default_factory=new_id)
    outcome: AuditOutcome = AuditOutcome.ACCEPTED
    error_code: str | None = None
    is_written: bool = False

    def columns(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "project_id": self.project_id,
            "token_id": self.token_id,
            "request_id": self.request_id,
            "mutation": self.mutation,
            "input_digest": f"\\x{self.input_digest.hex()}",  # as PostgreSQL reads bytea from JSON
            "target": self.target,
            "outcome": self.outcome,
            "error_code": self.error_code,
        }


def current_record() -> AuditRecord | None:
    """The record that a transaction which does what the mutation asks for has to write."""
    record = _CURRENT.get()
    return None if record is None or record.is_written else record


@contextmanager
def running(record: AuditRecord) -> Generator[None]:
    token = _CURRENT.set(record)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def note_target(id: str) -> None:
    """For a request that gives a name: what it names, once that is known."""
    record = _CURRENT.get()
    if record is not None and record.target is None:
        record.target = id
