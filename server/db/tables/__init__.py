"""All tables, imported here so that the metadata is always complete."""

from server.db.tables.audit import AuditEvent
from server.db.tables.base import Base
from server.db.tables.event import EventLog, LoggedEvent, Outbox
from server.db.tables.instance import Attempt, IdempotencyKey, Instance, Operation
from server.db.tables.instance_row import InstanceLike, InstanceRow
from server.db.tables.job import Job, JobHistory, JobPause, JobSchedule, JobWorker
from server.db.tables.machine import Machine
from server.db.tables.policy import LifetimePolicy, MetricsReading
from server.db.tables.probe import HealthWatch, ProbeResult
from server.db.tables.provider import ProviderBalance, ProviderBudget, ProviderIdentity, ProviderObject, UnlinkedCount
from server.db.tables.rows import (
    AttemptLike,
    AttemptRow,
    AuditEventRow,
    BudgetLike,
    BudgetRow,
    DeliveryAttemptLike,
    DeliveryAttemptRow,
    DeliveryLike,
    DeliveryRow,
    OperationLike,
    OperationRow,
    ProbeLike,
    ProbeRow,
    ProjectLike,
    ProjectRow,
    ProjectWebhookLike,
    ProjectWebhookRow,
    QuotaLike,
    QuotaRow,
    TokenLike,
    TokenRow,
    VolumeLike,
    VolumeRow,
)
from server.db.tables.seal_key import SealKey
from server.db.tables.spend import Budget, BudgetMark, CostDay, CostEntry, Quota
from server.db.tables.token import Project, Token
from server.db.tables.volume import Volume, VolumeAttachment
from server.db.tables.webhook import (
    Delivery,
    DeliveryAttempt,
    DeliveryStatus,
    ProjectWebhook,
    WebhookFeed,
    WebhookSecret,
)

__all__ = [
    "Attempt",
    "AttemptLike",
    "AttemptRow",
    "AuditEvent",
    "AuditEventRow",
    "Base",
    "Budget",
    "BudgetLike",
    "BudgetMark",
    "BudgetRow",
    "CostDay",
    "CostEntry",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryAttemptLike",
    "DeliveryAttemptRow",
    "DeliveryLike",
    "DeliveryRow",
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
    "Machine",
    "MetricsReading",
    "Operation",
    "OperationLike",
    "OperationRow",
    "Outbox",
    "ProbeLike",
    "ProbeResult",
    "ProbeRow",
    "Project",
    "ProjectLike",
    "ProjectRow",
    "ProjectWebhook",
    "ProjectWebhookLike",
    "ProjectWebhookRow",
    "ProviderBalance",
    "ProviderBudget",
    "ProviderIdentity",
    "ProviderObject",
    "Quota",
    "QuotaLike",
    "QuotaRow",
    "SealKey",
    "Token",
    "TokenLike",
    "TokenRow",
    "UnlinkedCount",
    "Volume",
    "VolumeAttachment",
    "VolumeLike",
    "VolumeRow",
    "WebhookFeed",
    "WebhookSecret",
]
