"""Finds entries of the ledger that are not as the instances, or the times that the provider shows, demand."""

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.billing import BILLED_WORDS, MONTHLY, UNBILLED_STATUSES, UNBILLED_WORDS
from server.spend.machine_times import MachineTimes

# Which words are billed is in server/billing.py. A rate that differs was written by a process of an older release.
DIFFERING = text("""
    SELECT instance.id, instance.novita_id
    FROM instance LEFT JOIN cost_entry AS entry
         ON entry.instance_id = instance.id AND entry.machine = instance.novita_id AND entry.ended_at IS NULL
    WHERE instance.novita_id IS NOT NULL AND instance.billing_mode IS DISTINCT FROM :monthly
      AND instance.status <> ALL(:unpaid_statuses)
      AND instance.novita_status = ANY(:paid_words) AND entry.id IS NULL
    UNION ALL
    SELECT instance.id, instance.novita_id
    FROM cost_entry AS entry JOIN instance ON instance.id = entry.instance_id
    WHERE entry.ended_at IS NULL AND NOT EXISTS (
        SELECT FROM machine WHERE instance_id = instance.id AND novita_id = entry.machine AND ended_at IS NULL
                              AND novita_id IS DISTINCT FROM instance.novita_id)
      AND (instance.novita_id IS NULL OR instance.billing_mode = :monthly OR instance.status = ANY(:unpaid_statuses)
           OR instance.novita_status = ANY(:unpaid_words)
           OR (entry.machine, entry.price_e5, entry.labels, entry.product_name, entry.region) IS DISTINCT FROM
              (instance.novita_id, instance.price_per_hour_e5, instance.labels, instance.product_name, instance.region))
""")
# Of machines that were down after their entry's run had begun, and run again.
OF_FORMER_RUN = text("""
    SELECT instance_id, machine
    FROM cost_entry JOIN unnest(CAST(:machines AS text[]), CAST(:stops AS timestamptz[])) AS shown (id, stopped_at)
         ON machine = shown.id
    WHERE ended_at IS NULL AND run_began_at < stopped_at
""")
# Of machines that serve: those that are shown as paid for and have no open entry, or the other way round; those whose
# rows changed longest ago first. A machine that is being deleted is left to its own job.
CONTRADICTED = text("""
    SELECT instance.id, shown.id
    FROM unnest(CAST(:machines AS text[]), CAST(:paid AS boolean[])) AS shown (id, is_paid)
         JOIN instance ON instance.novita_id = shown.id
    WHERE instance.status NOT IN ('DELETING', 'DELETED') AND instance.billing_mode IS DISTINCT FROM :monthly
      AND is_paid <> EXISTS (SELECT FROM cost_entry WHERE instance_id = instance.id AND machine = shown.id
                                                      AND ended_at IS NULL)
    ORDER BY instance.updated_at LIMIT :limit
""")


async def find_differing(session: AsyncSession) -> list[tuple[UUID, str | None]]:
    """Instances, with their machines, whose entry is missing, should have ended, or has another rate."""
    words = {
        "paid_words": sorted(BILLED_WORDS),
        "unpaid_words": sorted(UNBILLED_WORDS),
        "unpaid_statuses": sorted(UNBILLED_STATUSES),
        "monthly": MONTHLY,
    }
    return [(row[0], row[1]) for row in await session.execute(DIFFERING, words)]


async def find_former_runs(session: AsyncSession, shown: Mapping[str, MachineTimes]) -> list[tuple[UUID, str]]:
    """Instances, with their machines, whose entry goes on although the machine was down in between."""
    stops = {machine: times.pause[0] for machine, times in shown.items() if times.pause is not None}
    if not stops:
        return []
    values = {"machines": list(stops), "stops": list(stops.values())}
    return [(row[0], row[1]) for row in await session.execute(OF_FORMER_RUN, values)]


async def find_contradicted(session: AsyncSession, words: Mapping[str, str], *, limit: int) -> list[tuple[UUID, str]]:
    """Instances, with their machines, whose entries are not as these words of the provider demand."""
    paid = {machine: word in BILLED_WORDS for machine, word in words.items() if word in BILLED_WORDS | UNBILLED_WORDS}
    values = {"machines": list(paid), "paid": list(paid.values()), "monthly": MONTHLY, "limit": limit}
    return [(row[0], row[1]) for row in await session.execute(CONTRADICTED, values)] if paid else []
