"""Settings of the provider's API, of its simulator, and of caches for provider data."""

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from server.config.types import Duration, HttpOrigin, SettingsGroup


def _redis_url(value: SecretStr) -> SecretStr:
    parts = urlsplit(value.get_secret_value())
    if parts.scheme not in ("redis", "rediss", "unix") or not (parts.hostname or parts.path):
        raise ValueError("must look like redis://user:password@host:6379/0")
    return value


def _api_key(value: SecretStr) -> SecretStr:
    """Without the newline that files and `echo` add."""
    key = value.get_secret_value().strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("must be one word of ASCII characters")
    return SecretStr(key)


class ProviderSettings(SettingsGroup):
    novita_api_key: Annotated[SecretStr, AfterValidator(_api_key)] | None = Field(
        default=None, description="Key of the Novita.ai API. Without one, `pilotlight up` runs the simulator."
    )
    novita_api_base_url: HttpOrigin = Field(
        default="https://api.novita.ai", description="Host of the Novita.ai API, without a path."
    )
    novita_rate_limit: int = Field(
        default=100,
        ge=0,
        description="Provider calls per minute of all processes together; further calls wait. 0 turns the limit off.",
    )
    live_reads_per_token: int = Field(
        default=30,
        ge=0,
        description="Requests per minute, token and process that are answered by a provider call of their own "
        "(`sshAccess`, `instanceLog`, `syncFleet`, `adoptInstance`, `prewarms`, changes of templates, networks and the "
        "like), half of them at once. 0 means no limit.",
    )
    live_reads_per_project: int = Field(
        default=40, ge=0, description="The same per project. All projects together get half of NOVITA_RATE_LIMIT."
    )
    request_timeout: Duration = Field(default=timedelta(seconds=30), description="Timeout of one provider call.")
    request_deadline: Duration = Field(
        default=timedelta(seconds=30),
        description="How long a provider call may be delayed by the rate limit and by retries before its last attempt "
        "begins.",
    )
    breaker_threshold: int = Field(
        default=5, ge=1, description="Consecutive provider failures that open the circuit breaker."
    )
    breaker_recovery: Duration = Field(
        default=timedelta(seconds=60), description="How long the circuit breaker stays open before one trial call."
    )
    provider_max_wait: Duration = Field(
        default=timedelta(hours=1),
        description="How long an operation waits for an unreachable provider before it fails.",
    )
    gone_grace: Duration = Field(
        default=timedelta(seconds=60),
        description="How far apart two looks that do not find a machine must be before it counts as gone.",
    )
    simulator_speed: float = Field(
        default=1.0, gt=0, le=1000, description="Speed factor of the simulator's instances; 1 suits a demonstration."
    )
    simulator_dialect: str | None = Field(
        default=None,
        description="Where the real provider's behaviour is not known: what the simulator does, such as "
        "`first_page=0,name_filter=prefix` (docs/provider.md).",
    )

    product_cache_ttl: Duration = Field(default=timedelta(minutes=5), description="TTL of the product cache.")
    template_cache_ttl: Duration = Field(default=timedelta(minutes=10), description="TTL of the template cache.")
    instance_cache_ttl: Duration = Field(
        default=timedelta(seconds=30), description="TTL of the provider's view of an instance that is changing state."
    )
    instance_state_cache_ttl: Duration = Field(
        default=timedelta(seconds=60), description="TTL of the cache of when an instance was last seen, and its state."
    )
    fleet_cache_ttl: Duration = Field(
        default=timedelta(seconds=30), description="TTL of the provider's instance list in `fleet`."
    )
    market_hot: Duration = Field(
        default=timedelta(seconds=15),
        description="How often an offer is read that a subscriber or an alert watches.",
    )
    market_cold: Duration = Field(default=timedelta(minutes=5), description="How often other offers are read.")
    market_calls: int = Field(
        default=20, ge=1, description="Provider calls per minute that read offers, by all processes together."
    )
    market_retention: Duration = Field(default=timedelta(days=90), description="How long changes of offers are kept.")
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = Field(
        default=None, description="Redis, to share the caches between processes. Without it, each process has its own."
    )
    budget_horizon: Duration = Field(
        default=timedelta(hours=1),
        description="For how long budgets that are created from now on count a machine without a hard end in advance.",
    )
    balance_warn: Duration = Field(
        default=timedelta(hours=24),
        description="An event `balance.low` is written when the account's balance lasts for less than this at the "
        "present prices.",
    )
    bill_interval: Duration = Field(
        default=timedelta(days=1), description="How often the ledger is compared with the provider's bill."
    )
    reconcile_interval: Duration = Field(
        default=timedelta(minutes=5), description="How often all rows are compared with the provider's list."
    )
