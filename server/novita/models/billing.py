"""The account's balance."""

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
