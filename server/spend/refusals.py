"""Refusals because of quotas, limits of a token, and binding quotes."""

from uuid import UUID

from server.errors import Refused


class QuotaExceeded(Refused):
    """A quota would be exceeded. A price is in millionths of a dollar, the others are counts."""

    def __init__(self, quota_id: UUID, limit: str, *, used: int, needed: int, allowed: int) -> None:
        if limit == "maxPricePerHour":
            shown = f"{used / 1e6:.2f} of {allowed / 1e6:.2f} USD are used and {needed / 1e6:.2f} more are needed"
        else:
            shown = f"{used} of {allowed} are used and {needed} more are needed"
        super().__init__("PROJECT_QUOTA_EXCEEDED", f"A quota's {limit} would be exceeded: {shown}.")
        self.quota_id, self.limit = quota_id, limit
        self.used, self.allowed = used, allowed


class TokenLimitExceeded(Refused):
    """The token is for other products or regions; `limit` is the field of its limits."""

    def __init__(self, limit: str, message: str, path: tuple[str, ...]) -> None:
        super().__init__("TOKEN_LIMIT_EXCEEDED", message, path)
        self.limit = limit


class PriceDrifted(Refused):
    """The quoted machine costs more now. Prices are per hour, in 1/100000 USD."""

    def __init__(self, quoted_e5: int, now_e5: int, path: tuple[str, ...]) -> None:
        message = f"It was quoted for {quoted_e5 / 1e5:.5f} USD per hour and costs {now_e5 / 1e5:.5f} now."
        super().__init__("PRICE_DRIFTED", message, path)
        self.quoted_e5, self.now_e5 = quoted_e5, now_e5
