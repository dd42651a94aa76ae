"""Every table, imported here so that the metadata is whole wherever it is asked for."""

from server.db.base import Base
from server.db.tables.event import EventLog, LoggedEvent, Outbox
from server.db.tables.instance import Attempt, IdempotencyKey, Instance, Operation
from server.db.tables.job import Job, JobHistory, JobPause, JobSchedule, JobWorker
from server.db.tables.probe import ProbeResult
from server.db.tables.token import Project, Token
from server.db.tables.webhook import Delivery, DeliveryAttempt, DeliveryStatus, WebhookSecret

__all__ = [
    "Attempt",
    "Base",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryStatus",
    "EventLog",
    "IdempotencyKey",
    "Instance",
    "Job",
    "JobHistory",
    "JobPause",
    "JobSchedule",
    "JobWorker",
    "LoggedEvent",
    "Operation",
    "Outbox",
    "ProbeResult",
    "Project",
    "Token",
    "WebhookSecret",
]
