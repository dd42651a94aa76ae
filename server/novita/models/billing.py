"""The account's balance and bills."""

from datetime import datetime

from server.novita.models.base import model
from server.novita.transport.json_reader import InvalidResponse, JsonReader


@model
class Balance:
    """In ten-thousandths of a dollar, as the provider counts. Only the available amount is always there."""

    available_e4: int
    cash_e4: int | None
    credit_limit_e4: int | None
    pending_charges_e4: int | None
    outstanding_invoices_e4: int | None

    @classmethod
    def read(cls, raw: JsonReader) -> "Balance":
        available = raw.integer("availableBalance")
        if available is None:
            raise InvalidResponse("it has no availableBalance")
        return cls(
            available,
            raw.integer("cashBalance"),
            raw.integer("creditLimit"),
            raw.integer("pendingCharges"),
            raw.integer("outstandingInvoices"),
        )

    def __str__(self) -> str:
        return f"${self.available_e4 / 10_000:.2f}"


@model
class BillLine:
    """A line of a bill. `instance_id` is the provider's; amounts are ten-thousandths of a dollar."""

    instance_id: str
    product_name: str
    since: datetime | None
    until: datetime | None
    amount_e4: int

    @classmethod
    def read(cls, raw: JsonReader) -> "BillLine":
        amount = raw.integer("amount")
        if amount is None:
            raise InvalidResponse("a bill has no amount")
        return cls(
            raw.required_id("ownerID", "ownerId"),
            raw.text("productName"),
            raw.time("startTime"),
            raw.time("endTime"),
            amount,
        )

    @classmethod
    def read_all(cls, raw: JsonReader) -> "tuple[BillLine, ...]":
        return tuple(cls.read(line) for line in raw.objects("bills"))
