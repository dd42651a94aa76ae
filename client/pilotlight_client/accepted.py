"""The result of a request that begins an operation."""

from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from pilotlight_client.decoding import decode
from pilotlight_client.models import Instance, Operation


@dataclass(frozen=True)
class Accepted:
    """An accepted request: the instance right after it, and the operation that carries it out."""

    instance: Instance
    operation: Operation
    replayed: bool
    """Whether this is the result of an earlier request with the same idempotency key."""

    @classmethod
    def of(cls, payload: dict[str, Any]) -> Self:
        """The payload of a mutation."""
        instance, operation = decode(Instance, payload["instance"]), decode(Operation, payload["operation"])
        return cls(instance, operation, payload["replayed"])
