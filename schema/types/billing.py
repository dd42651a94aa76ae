"""How an instance is paid."""

from enum import StrEnum

from schema.words import described


class BillingMode(StrEnum):
    """The provider's words, as far as they are known."""

    SPOT = "spot"
    ON_DEMAND = "onDemand"
    MONTHLY = "monthly"
    OTHER = "other"

    @classmethod
    def of(cls, word: str | None) -> "BillingMode | None":
        if not word:
            return None
        return cls(word) if word in _KNOWN else cls.OTHER


_KNOWN = frozenset(BillingMode)

described(
    BillingMode,
    description="How an instance is paid at the provider.",
    values={
        "SPOT": "By the hour and for less; the provider may take it back.",
        "ON_DEMAND": "By the hour, for as long as one likes.",
        "MONTHLY": "In advance; only machines that were taken over are paid so.",
        "OTHER": "In a way that this server has no word for.",
    },
)
