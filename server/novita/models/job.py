"""The provider's jobs: saved images and migrations."""

from dataclasses import field
from datetime import datetime

from server.novita.models.base import model
from server.novita.transport.json_reader import JsonReader


@model
class Job:
    id: str
    type: str
    state: str
    error: str | None
    log_address: str | None = field(repr=False)
    instance_id: str | None
    created_at: datetime | None

    @classmethod
    def read(cls, raw: JsonReader) -> "Job":
        state = raw.nested("state")
        return cls(
            id=raw.required_id("Id", "id"),
            type=raw.text("type"),
            state=state.text("state"),
            error=state.optional_text("errorMessage") or state.optional_text("message") or state.optional_text("error"),
            log_address=raw.optional_text("logAddress"),
            instance_id=raw.optional_text("instanceId"),
            created_at=raw.time("createdAt"),
        )
