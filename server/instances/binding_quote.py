"""Quotes that hold: signed, valid for five minutes, and not stored."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from hmac import compare_digest
from typing import Any
from uuid import UUID

import orjson

from server.enums import Billing
from server.errors import Invalid, Problem
from server.idempotency import requested_fields
from server.instances.drafts import CreateDraft
from server.instances.placement import MODES, Candidate
from server.spend.refusals import PriceDrifted

VALID_FOR = timedelta(minutes=5)
PREFIX = "qte_"
TAG_SIZE = 16  # bytes
DRIFT_MAX = 1.0  # twice the price
PATH = ("input", "quoteId")
# What decides which machine is taken, at which price, and how long it may run.
BOUND = frozenset(
    [
        "product_name",
        "kind",
        "gpu_count",
        "rootfs_size_gb",
        "template_id",
        "region",
        "regions",
        "placement",
        "billing",
        "max_hourly_price_e5",
        "min_cuda_version",
        "network_id",
        "volumes",
        "lifetime",
    ]
)


@dataclass(frozen=True, slots=True)
class BindingQuote:
    """One candidate for one request of one project, until a time."""

    project_id: UUID
    request: str
    region: str
    billing_mode: str
    product_id: str
    price_e5: int
    expires_at: datetime

    @classmethod
    def of(cls, draft: CreateDraft, candidate: Candidate, *, project_id: UUID, at: datetime) -> "BindingQuote":
        """Whole seconds, so that the signed time is the one that is shown."""
        expires_at = (at + VALID_FOR).replace(microsecond=0)
        return cls(
            project_id,
            _digest(draft),
            candidate.region,
            candidate.billing_mode,
            candidate.product_id,
            candidate.price_per_hour_e5,
            expires_at,
        )

    def sign(self, key: bytes) -> str:
        fields = [
            self.project_id.hex,
            self.request,
            self.region,
            self.billing_mode,
            self.product_id,
            self.price_e5,
            int(self.expires_at.timestamp()),
        ]
        content = orjson.dumps(fields)
        return PREFIX + urlsafe_b64encode(_tag(key, content) + content).decode().rstrip("=")

    @classmethod
    def read(cls, id: str, key: bytes) -> "BindingQuote | None":
        """None if it was not signed with this key."""
        try:
            signed = urlsafe_b64decode(id.removeprefix(PREFIX).encode() + b"==")
        except ValueError:
            return None
        tag, content = signed[:TAG_SIZE], signed[TAG_SIZE:]
        if not compare_digest(tag, _tag(key, content)):
            return None
        project, request, region, mode, product, price, expires = orjson.loads(content)
        moment = datetime.fromtimestamp(expires, tz=UTC)
        return cls(UUID(project), request, region, mode, product, price, moment)

    def bound(self, draft: CreateDraft) -> CreateDraft:
        """The request for exactly the quoted region and billing mode."""
        billing = next(each for each in (Billing.SPOT, Billing.ON_DEMAND) if self.billing_mode in MODES[each])
        return replace(draft, region=None, regions=(self.region,), placement=None, billing=billing)

    def highest_price(self, draft: CreateDraft) -> int:
        """What the machine may cost per hour in 1/100000 USD: the worker takes none above it."""
        highest = int(self.price_e5 * (1 + draft.max_price_drift))
        return highest if draft.max_hourly_price_e5 is None else min(highest, draft.max_hourly_price_e5)

    def refuse_other(self, candidate: Candidate, draft: CreateDraft) -> None:
        """Raise Refused if the price or the product is no longer the quoted one."""
        if candidate.price_per_hour_e5 > int(self.price_e5 * (1 + draft.max_price_drift)):
            raise PriceDrifted(self.price_e5, candidate.price_per_hour_e5, PATH)
        if candidate.product_id != self.product_id:
            raise _mismatch("The quoted product is no longer offered there.")


def held_quote(draft: CreateDraft, key: bytes | None, *, project_id: UUID, at: datetime) -> BindingQuote | None:
    """The quote that the request names, if any; raises Invalid if it does not hold for this request."""
    if draft.quote_id is None:
        return None
    quote = None if key is None else BindingQuote.read(draft.quote_id, key)
    if quote is None or quote.project_id != project_id or quote.request != _digest(draft):
        raise _mismatch("This is no quote of this request.")
    if quote.expires_at <= at:
        raise Invalid([Problem("QUOTE_EXPIRED", "The quote has expired; request another one.", PATH)])
    return quote


def drift_problems(draft: CreateDraft) -> Iterator[Problem]:
    if not 0 <= draft.max_price_drift <= DRIFT_MAX:
        message = "It must be 0 to 1; 0.05 is 5 per cent."
        yield Problem("INVALID_MAX_PRICE_DRIFT", message, ("input", "maxPriceDrift"))


def _digest(draft: CreateDraft) -> str:
    fields: dict[str, Any] = {name: value for name, value in requested_fields(draft).items() if name in BOUND}
    return blake2b(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS, default=str), digest_size=TAG_SIZE).hexdigest()


def _tag(key: bytes, content: bytes) -> bytes:
    return blake2b(content, key=key, digest_size=TAG_SIZE).digest()


def _mismatch(message: str) -> Invalid:
    return Invalid([Problem("QUOTE_MISMATCH", message, PATH)])
