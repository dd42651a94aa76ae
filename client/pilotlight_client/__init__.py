"""A typed Python client of Pilotlight, the GraphQL control plane for GPU instances."""

from pilotlight_client.accepted import Accepted
from pilotlight_client.aio import AsyncPilotlight
from pilotlight_client.errors import (
    CursorExpired,
    Forbidden,
    NotConfigured,
    NotFound,
    OperationFailed,
    PilotlightError,
    Refused,
    RequestFailed,
    Unauthenticated,
    Unreachable,
    WaitTimedOut,
)
from pilotlight_client.machine import AsyncMachine, Machine
from pilotlight_client.requests import AsyncRequests
from pilotlight_client.sync import Pilotlight
from pilotlight_client.values import Money

__all__ = [
    "Accepted",
    "AsyncMachine",
    "AsyncPilotlight",
    "AsyncRequests",
    "CursorExpired",
    "Forbidden",
    "Machine",
    "Money",
    "NotConfigured",
    "NotFound",
    "OperationFailed",
    "Pilotlight",
    "PilotlightError",
    "Refused",
    "RequestFailed",
    "Unauthenticated",
    "Unreachable",
    "WaitTimedOut",
]
