"""Tables of what instances cost and may cost: the ledger's entries, their sums by day, budgets and quotas."""

from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Date, ForeignKey, Identity, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of
from server.enums import BudgetAction, BudgetPeriod


class CostEntry(Base):
    """A time for which a machine was paid, at one price and within one day. Open while the machine is paid for.

    Only `server.spend.ledger` writes entries. `is_summed`: it is part of its `CostDay`.
    """

    __tablename__ = "cost_entry"
    __table_args__ = (
        Index(
            "cost_entry_one_open_per_machine",
            "instance_id",
            "machine",
            unique=True,
            postgresql_where=text("ended_at IS NULL"),
        ),
        Index("cost_entry_of_instance", "instance_id", "began_at"),
        Index("cost_entry_by_project", "project_id", "began_at"),
        Index("cost_entry_not_summed_by_end", "project_id", "ended_at", postgresql_where=text("NOT is_summed")),
        Index("cost_entry_to_sum", "ended_at", postgresql_where=text("NOT is_summed AND ended_at IS NOT NULL")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id"))
    machine: Mapped[str]  # the provider's id
    token_id: Mapped[UUID | None]  # that requested the run
    labels: Mapped[dict[str, str]]
    price_e5: Mapped[int | None]  # of the whole machine for an hour; null: not known, and counted as nothing
    product_name: Mapped[str]
    region: Mapped[str | None]
    run_began_at: Mapped[datetime]  # of the first entry of the run
    began_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    amount_micros: Mapped[int | None]  # null while open, or without a price
    is_summed: Mapped[bool] = mapped_column(server_default=text("false"))


class CostDay(Base):
    """The sums of an instance's entries of one day (UTC) that are equal in all else."""

    __tablename__ = "cost_day"
    __table_args__ = (
        Index(
            "cost_day_is_unique",
            "project_id",
            "day",
            "instance_id",
            "token_id",
            text("md5(labels::text)"),  # many labels do not fit into an index
            "product_name",
            "region",
            unique=True,
            postgresql_nulls_not_distinct=True,
        ),
        Index("cost_day_of_instance", "instance_id", "day"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    day: Mapped[date] = mapped_column(Date)
    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id"))
    token_id: Mapped[UUID | None]
    labels: Mapped[dict[str, str]]
    product_name: Mapped[str]
    region: Mapped[str | None]
    amount_micros: Mapped[int]
    paid_us: Mapped[int]  # microseconds


class Budget(Base):
    """How much a project, a label or a token may spend in a period. Admission locks the row: see admission.py."""

    __tablename__ = "budget"
    __table_args__ = (
        one_of("period", BudgetPeriod),
        one_of("action", BudgetAction),
        CheckConstraint("limit_micros > 0", name="limit_is_positive"),
        CheckConstraint("(label_key IS NULL) = (label_value IS NULL)", name="label_has_a_value"),
        CheckConstraint("label_key IS NULL OR token_id IS NULL", name="has_one_scope"),
        Index("budget_name_is_unique", "project_id", "name", unique=True),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    label_key: Mapped[str | None]
    label_value: Mapped[str | None]
    token_id: Mapped[UUID | None] = mapped_column(ForeignKey("token.id"))
    period: Mapped[str]
    timezone: Mapped[str]
    limit_micros: Mapped[int]
    thresholds: Mapped[list[int]] = mapped_column(JSONB)  # per cent of the limit
    action: Mapped[str]
    exempt: Mapped[list[Any]]  # conditions on labels of instances that are neither stopped nor deleted
    horizon_s: Mapped[int]  # for which a machine without a hard end is counted
    created_at: Mapped[CreatedAt]


class Quota(Base):
    """How many machines a project, a label or a token may have at once. Admission locks the row, after budgets."""

    __tablename__ = "quota"
    __table_args__ = (
        CheckConstraint("(label_key IS NULL) = (label_value IS NULL)", name="label_has_a_value"),
        CheckConstraint("label_key IS NULL OR token_id IS NULL", name="has_one_scope"),
        CheckConstraint("num_nonnulls(max_instances, max_gpus, max_price_e5) > 0", name="has_a_maximum"),
        Index(
            "quota_one_per_scope",
            "project_id",
            "label_key",
            "label_value",
            "token_id",
            unique=True,
            postgresql_nulls_not_distinct=True,
        ),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    label_key: Mapped[str | None]
    label_value: Mapped[str | None]
    token_id: Mapped[UUID | None] = mapped_column(ForeignKey("token.id"))
    max_instances: Mapped[int | None]
    max_gpus: Mapped[int | None]
    max_price_e5: Mapped[int | None]  # of all machines together for an hour
    created_at: Mapped[CreatedAt]


class BillLine(Base):
    """What the provider has billed for a machine and a day (UTC). Only `server.spend.bill` writes it."""

    __tablename__ = "bill_line"
    __table_args__ = (Index("bill_line_by_project", "project_id", "day"),)

    machine: Mapped[str] = mapped_column(primary_key=True)  # the provider's id
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id"))
    amount_micros: Mapped[int]


class BillDifference(Base):
    """A day on which bill and ledger of a project differed when they were compared; the key announces it once."""

    __tablename__ = "bill_difference"

    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"), primary_key=True)
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    billed_micros: Mapped[int]
    ledger_micros: Mapped[int]
    created_at: Mapped[CreatedAt]


class BillCheck(Base):
    """At most one row: the first day that is not compared yet, and the first that is (before, there was no ledger)."""

    __tablename__ = "bill_check"
    __table_args__ = (CheckConstraint("is_the_only_row", name="has_one_row"),)

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    since: Mapped[date | None] = mapped_column(Date)
    until: Mapped[date | None] = mapped_column(Date)
    checked_at: Mapped[datetime | None]


class BudgetMark(Base):
    """What was announced in a period of a budget; the key lets each be announced once."""

    __tablename__ = "budget_mark"

    budget_id: Mapped[UUID] = mapped_column(ForeignKey("budget.id", ondelete="CASCADE"), primary_key=True)
    period_began_at: Mapped[datetime] = mapped_column(primary_key=True)
    mark: Mapped[str] = mapped_column(primary_key=True)  # a threshold, EXHAUSTED or RESET
    created_at: Mapped[CreatedAt]
