"""Settings of instances, jobs, health checks and webhooks."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from server.config.types import Duration, DurationOrZero, SettingsGroup, Words
from server.ssrf import PrivateAddresses


def _lease(value: timedelta) -> timedelta:
    if value < timedelta(seconds=2):
        raise ValueError("must be at least 2s, or busy workers lose their jobs")
    return value


def _signing_key(value: SecretStr) -> SecretStr:
    if any(len(key.strip()) < 16 for key in value.get_secret_value().split(",")):
        raise ValueError("must have at least 16 random characters, or be several such keys separated by commas")
    return value


def _private_addresses(value: Any) -> Any:
    """Accepts the usual words for off and on besides the enum's own."""
    words = {"0": "off", "no": "off", "false": "off", "1": "all", "yes": "all", "true": "all", "on": "all"}
    return words.get(str(value).strip().lower(), value)


class InstanceSettings(SettingsGroup):
    default_regions: Words = Field(
        default=(),
        description="Regions to try, in this order, for requests that name none. Unset: any region, the lowest price "
        "first.",
    )
    instance_poll_interval: Duration = Field(
        default=timedelta(seconds=30), description="Longest interval between polls of an instance that changes state."
    )
    instance_max_wait: Duration = Field(
        default=timedelta(minutes=10), description="How long an instance may take to run before it fails."
    )
    estimated_ready_time: Duration = Field(
        default=timedelta(minutes=4), description="Estimated duration of a create, used until there is history."
    )
    max_pending_creates: int = Field(
        default=2000,
        ge=0,
        description="How many creates of one project may wait for their turn; more are refused with QUEUE_FULL. 0: any "
        "number.",
    )
    create_grace: Duration = Field(
        default=timedelta(seconds=15),
        description="How long a create call without a response must be missing from the provider's list before it is "
        "repeated, counted from the latest moment at which the provider can have carried it out.",
    )
    health_check_timeout: Duration = Field(default=timedelta(seconds=10), description="Timeout of one probe.")
    health_check_retries: int = Field(
        default=3, ge=0, le=10, description="Retries of an unhealthy endpoint within one health check."
    )
    health_check_delay: Duration = Field(
        default=timedelta(seconds=2), description="Delay before the first of these retries; it doubles each time."
    )
    health_check_max_wait: Duration = Field(
        default=timedelta(minutes=5), description="How long an instance's endpoints may take to become healthy."
    )
    health_check_interval: DurationOrZero = Field(
        default=timedelta(seconds=60), description="How often the endpoints of a READY instance are probed; 0: never."
    )
    health_check_failure_threshold: int = Field(
        default=3, ge=1, le=10, description="Consecutive failed probes after which a READY instance is degraded."
    )
    health_check_success_threshold: int = Field(
        default=2, ge=1, le=10, description="Consecutive successful probes after which it is not degraded any more."
    )
    health_watch_concurrency: int = Field(
        default=2000, ge=8, le=20_000, description="How many READY instances may be probed at the same time."
    )


class LifetimeSettings(SettingsGroup):
    lifetime_retry: Duration = Field(
        default=timedelta(minutes=5),
        description="How long after a failed stop or delete at the end of a lifetime it is tried again.",
    )
    metrics_share: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="Largest share of NOVITA_RATE_LIMIT that is used to find out which instances are idle.",
    )
    default_max_duration: Duration | None = Field(
        default=None,
        description="Longest run of instances whose request and project name neither a duration nor a deadline. Unset: "
        "no limit.",
    )


class JobSettings(SettingsGroup):
    max_concurrent_jobs: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="Maximum concurrent jobs per process, beside the slots that each class of jobs has of its own "
        "(docs/jobs.md).",
    )
    max_retry_attempts: int = Field(default=3, ge=1, le=100, description="Attempts of a job before it fails.")
    job_poll_interval: Duration = Field(
        default=timedelta(seconds=1), description="How often workers look for jobs when no notification arrives."
    )
    job_lease: Annotated[Duration, AfterValidator(_lease)] = Field(
        default=timedelta(seconds=20), description="How long a worker that stops responding keeps its jobs."
    )
    job_retention: Duration = Field(default=timedelta(hours=24), description="How long finished jobs are kept.")
    event_retention: Duration = Field(default=timedelta(days=30), description="How long events can be replayed.")
    deleted_retention: Duration = Field(
        default=timedelta(days=30),
        description="How long operations and attempts of deleted instances are kept. The instance itself stays.",
    )
    idempotency_retention: Duration = Field(
        default=timedelta(days=30), description="How long an idempotency key is remembered."
    )
    audit_retention: Duration = Field(
        default=timedelta(days=365), description="How long the audit log is kept; export it before."
    )
    shutdown_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long running jobs and requests may take when a process stops."
    )


class WebhookSettings(SettingsGroup):
    webhook_timeout: Duration = Field(
        default=timedelta(seconds=10), description="How long a webhook receiver may take to respond."
    )
    webhook_signing_key: Annotated[SecretStr, AfterValidator(_signing_key)] | None = Field(
        default=None,
        description="Key from which webhook secrets are derived; the same for all processes. Several, separated by "
        "commas: new secrets are derived from the first, and those of the others stay good. Without one, the key that "
        "`pilotlight up` stored in this home.",
    )
    allow_private_webhooks: Annotated[PrivateAddresses, BeforeValidator(_private_addresses)] = Field(
        default=PrivateAddresses.OFF,
        description="Webhooks to addresses that are not public: off, loopback or all. `pilotlight up` allows loopback.",
    )
