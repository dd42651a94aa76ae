"""All tables, imported here so that the metadata is always complete."""

from server.db.tables.base import Base
from server.db.tables.event import EventLog, LoggedEvent, Outbox
from server.db.tables.instance import Attempt, IdempotencyKey, Instance, Operation
from server.db.tables.instance_row import InstanceLike, InstanceRow
from server.db.tables.job import Job, JobHistory, JobPause, JobSchedule, JobWorker
from server.db.tables.policy import LifetimePolicy, MetricsReading
from server.db.tables.probe import HealthWatch, ProbeResult
from server.db.tables.provider import ProviderBalance, ProviderBudget, ProviderIdentity, ProviderObject, UnlinkedCount
from server.db.tables.seal_key import SealKey
from server.db.tables.token import Project, Token
from server.db.tables.webhook import Delivery, DeliveryAttempt, DeliveryStatus, WebhookSecret

__all__ = [
    "Attempt",
    "Base",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryStatus",
    "EventLog",
    "HealthWatch",
    "IdempotencyKey",
    "Instance",
    "InstanceLike",
    "InstanceRow",
    "Job",
    "JobHistory",
    "JobPause",
    "JobSchedule",
    "JobWorker",
    "LifetimePolicy",
    "LoggedEvent",
    "MetricsReading",
    "Operation",
    "Outbox",
    "ProbeResult",
    "Project",
    "ProviderBalance",
    "ProviderBudget",
    "ProviderIdentity",
    "ProviderObject",
    "SealKey",
    "Token",
    "UnlinkedCount",
    "WebhookSecret",
]
