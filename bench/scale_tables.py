"""What bench/scale.py fills into the tables of money, market, waiting and the audit log, and what it asks of them.

Beside the two projects that grow with the tables there is a third one of constant size: what it asks must cost the
same, however much the others have.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import asyncpg
import orjson

from server.audit.log import INSERT_BATCH, to_json
from server.audit.queries import AuditFilter, conditions_on_audit
from server.audit.record import AuditRecord
from server.clock import new_id
from server.db.database import Database
from server.db.pages import newest_first
from server.db.tables import AuditEventRow, Budget
from server.market.history import read_availability, read_buckets
from server.market.outlook import next_offer_at
from server.market.queries import OfferFilter, read_offers
from server.market.tape import WRITE_CHANGES, OfferKey
from server.market.waiting_view import read_waits
from server.market.waits import Needs
from server.market.wake import CHOOSE
from server.spend.report import SpendGroup, SpendScope, read_instances, read_spend, read_summaries
from server.spend.sums import ADD_TO_DAYS, sum_entries
from server.spend.usage import read_usage

PROJECT, OTHER, TEAM = UUID(int=1), UUID(int=2), UUID(int=3)
DAYS = 30
PRODUCTS, REGIONS, MODES = 20, 10, 2
OFFERS = PRODUCTS * REGIONS * MODES
CHANGE_EVERY = timedelta(minutes=10)  # of each offer
ID = "('00000000-0000-7000-{0}-' || lpad(to_hex({1}), 12, '0'))::uuid"


class Side(Protocol):
    """One of the two databases; see scale.py."""

    database: Database
    rows: int
    instances: int


Question = Callable[[Any], Awaitable[Any]]

SIZED = {"ledger": "cost_entry", "tape": "offer_change", "waits": "capacity_wait", "audit": "audit_event"}
RARE = "inst_of_one_record"

# The project of constant size: a hundred machines, each an hour a day, ten of them on.
TEAM_INSTANCES = f"""
    INSERT INTO instance (id, project_id, name, status, product_name, gpu_count, rootfs_size_gb, billing, image)
    SELECT {ID.format("9000", "n")}, $1, 'team-' || n, 'EXITED', 'product 1', 1, 60, 'SPOT', 'nginx'
    FROM generate_series(1, 100) AS n
"""
ENTRY = """
    INSERT INTO cost_entry (project_id, instance_id, machine, token_id, labels, price_e5, product_name, region,
                            run_began_at, began_at, ended_at, amount_micros, is_summed)
"""
TODAY = "date_trunc('day', now(), 'UTC')"
LARGE_ENTRIES = f"""{ENTRY}
    SELECT project_id, id, 'm' || n, NULL, '{{"team": "t1"}}', 36000, 'product ' || n % {PRODUCTS},
           'region ' || n % {REGIONS}, at, at, at + interval '1 h', 360000, true
    FROM generate_series(1, $1::int) AS n, LATERAL (
        SELECT {ID.format("8000", "1 + n % $2::int")} AS id, {TODAY} - (1 + n % {DAYS}) * interval '1 d' AS at,
               CASE WHEN (1 + n % $2::int) % 20 = 19 THEN $4::uuid ELSE $3::uuid END AS project_id
    ) AS each
"""
LARGE_OPEN = f"""{ENTRY}
    SELECT $2, {ID.format("8000", "n")}, 'open' || n, NULL, '{{"team": "t1"}}', 36000, 'product 1', 'region 1',
           now(), now(), NULL, NULL, false
    FROM generate_series(1, $1::int, 10) AS n WHERE n % 20 <> 19
"""
TEAM_ENTRIES = f"""{ENTRY}
    SELECT $1, {ID.format("9000", "n")}, 'm' || n, NULL, '{{"team": "t1"}}', 36000, 'product 1', 'region 1',
           at, at, at + interval '1 h', 360000, true
    FROM generate_series(1, 100) AS n, generate_series({TODAY} - interval '{DAYS} d', {TODAY} - interval '1 d',
                                                       interval '1 d') AS at
"""
TEAM_OPEN = f"""{ENTRY}
    SELECT $1, {ID.format("9000", "n")}, 'm' || n, NULL, '{{"team": "t1"}}', 36000, 'product 1', 'region 1',
           now(), now(), NULL, NULL, false
    FROM generate_series(1, 10) AS n
"""
CLOSED = f"""{ENTRY}
    SELECT $1, {ID.format("9000", "n")}, 'closed' || n, NULL, '{{"team": "t1"}}', 36000, 'product 1', 'region 1',
           {TODAY}, {TODAY}, {TODAY} + interval '1 min', 6000, false
    FROM generate_series(1, 100) AS n
"""
REGION = f"'region ' || n / {PRODUCTS} % {REGIONS}"
MODE = f"(ARRAY['spot', 'onDemand'])[1 + n / {PRODUCTS * REGIONS} % {MODES}]"
OFFER = f"""
    INSERT INTO offer (region, product_id, mode, gpu_count, product_name, price_e5, is_available, inventory, product,
                       seen_at, changed_at)
    SELECT {REGION}, (n % {PRODUCTS})::text, {MODE}, 1, 'product ' || n % {PRODUCTS}, 36000, true, 'normal', '{{}}',
           now(), now()
    FROM generate_series(0, {OFFERS} - 1) AS n
"""
CHANGES = f"""
    INSERT INTO offer_change (region, product_id, product_name, mode, gpu_count, price_e5, is_available, inventory, at)
    SELECT {REGION}, (n % {PRODUCTS})::text, 'product ' || n % {PRODUCTS}, {MODE}, 1, 36000 + n / {OFFERS} % 7,
           n / {OFFERS} % 2 = 0, CASE WHEN n / {OFFERS} % 2 = 0 THEN 'normal' ELSE 'none' END,
           now() - (n / {OFFERS}) * $2::interval
    FROM generate_series(0, $1::int - 1) AS n
"""
OPERATIONS = """
    INSERT INTO operation (id, project_id, instance_id, kind, status, phase)
    SELECT id, project_id, id, 'CREATE', 'RUNNING', 'PLACING' FROM instance WHERE project_id = $1
    ORDER BY created_at LIMIT $2
"""
WAITS = f"""
    INSERT INTO capacity_wait (operation_id, project_id, instance_id, kind, args, product_name, gpu_count,
                               rootfs_size_gb, regions, modes, priority, since, until)
    SELECT id, project_id, id, 'CREATE_INSTANCE', '{{}}', 'product ' || (row_number() OVER (ORDER BY id)) % {PRODUCTS},
           1, 60, ARRAY['region 1', 'region 2'], ARRAY['spot', 'onDemand'], 50, now(), now() + interval '1 day'
    FROM operation
"""
AUDIT = f"""
    INSERT INTO audit_event (id, project_id, token_id, created_at, request_id, mutation, input_digest, target, outcome)
    SELECT gen_random_uuid(), CASE WHEN n % 20 = 19 THEN $4::uuid ELSE $3::uuid END, gen_random_uuid(),
           now() - n * interval '1 s', 'req_' || substr(md5(n::text), 1, 20), 'createInstance',
           decode(md5(n::text), 'hex'), 'inst_' || {ID.format("8000", "1 + n % $2::int")}, 'ACCEPTED'
    FROM generate_series(1, $1::int) AS n
"""
AUDIT_OF_TEAM = """
    INSERT INTO audit_event (id, project_id, token_id, created_at, request_id, mutation, input_digest, target, outcome)
    SELECT gen_random_uuid(), $1, gen_random_uuid(), now() - n * interval '1 min', 'req_' || n, 'createInstance',
           decode(md5(n::text), 'hex'), 'inst_' || n, 'ACCEPTED'
    FROM generate_series(1, 1000) AS n
"""


async def fill_team(raw: asyncpg.Connection) -> None:
    await raw.execute("INSERT INTO project (id, name) VALUES ($1, 'team')", TEAM)
    await raw.execute(TEAM_INSTANCES, TEAM)


async def fill_ledger(raw: asyncpg.Connection, side: Side) -> None:
    await raw.execute(LARGE_ENTRIES, side.rows, side.instances, PROJECT, OTHER)
    await raw.execute(TEAM_ENTRIES, TEAM)
    await raw.execute(ADD_TO_DAYS.format(sign="", entries="cost_entry"))
    await raw.execute(LARGE_OPEN, side.instances, PROJECT)
    await raw.execute(TEAM_OPEN, TEAM)


async def fill_tape(raw: asyncpg.Connection, side: Side) -> None:
    await raw.execute(OFFER)
    await raw.execute(CHANGES, side.rows, CHANGE_EVERY)


async def fill_waits(raw: asyncpg.Connection, side: Side) -> None:
    """One in a hundred rows; their offers are those of the tape."""
    if not await raw.fetchval("SELECT EXISTS (SELECT FROM offer)"):
        await raw.execute(OFFER)
    await raw.execute(OPERATIONS, PROJECT, max(side.rows // 100, PRODUCTS))
    await raw.execute(WAITS)


async def fill_audit(raw: asyncpg.Connection, side: Side) -> None:
    await raw.execute(AUDIT, side.rows, side.instances, PROJECT, OTHER)
    await raw.execute(AUDIT_OF_TEAM, TEAM)
    await raw.execute(
        "UPDATE audit_event SET target = $1 WHERE id = (SELECT id FROM audit_event WHERE project_id = $2"
        " ORDER BY created_at LIMIT 1)",
        RARE,
        PROJECT,
    )


def spend(project: UUID, group: SpendGroup, *, days: int) -> Question:
    async def ask(side: Side) -> Any:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        async with side.database.read() as session:
            scope = SpendScope(project, today - timedelta(days=days), today)
            return (await read_spend(session, scope, group=group)).total_micros

    return ask


async def spend_of_instances(side: Side) -> Any:
    ids = [UUID(f"00000000-0000-7000-8000-{n:012x}") for n in range(1, 51)]
    async with side.database.read() as session:
        return await read_instances(session, ids)


async def month_of_a_project(side: Side) -> Any:
    async with side.database.read() as session:
        return (await read_summaries(session, [TEAM]))[TEAM].burn_e5


async def use_of_a_budget(side: Side) -> Any:
    budget = Budget(id=UUID(int=9), project_id=TEAM, period="MONTH", timezone="UTC", horizon_s=3600)
    return (await read_usage(side.database.raw.fetch, [budget]))[budget.id].burn_e5


async def sum_closed_entries(side: Side) -> Any:
    """What reconcile does: here of a hundred entries, which are written first."""
    await side.database.raw.execute(CLOSED, TEAM)
    await sum_entries(side.database.raw)
    return True


async def offers_of_a_product(side: Side) -> Any:
    async with side.database.read() as session:
        return await read_offers(session, OfferFilter(product_names=("product 1",)))


def history_of_an_offer(length: timedelta) -> Question:
    async def ask(side: Side) -> Any:
        until = datetime.now(UTC)
        async with side.database.read() as session:
            return await read_buckets(
                session,
                product_name="product 1",
                region="region 1",
                mode="spot",
                gpu_count=1,
                since=until - length,
                until=until,
                length=length / 10,
            )

    return ask


async def availability_of_offers(side: Side) -> Any:
    keys = [OfferKey(f"region {n}", "1", mode, 1) for n in range(REGIONS) for mode in ("spot", "onDemand")]
    async with side.database.read() as session:
        return await read_availability(session, dict.fromkeys(keys, "product 1"))


async def next_offer(side: Side) -> Any:
    async with side.database.read() as session:
        await next_offer_at(session, Needs("product 1", 1, ["region 1", "region 2"], ["spot", "onDemand"]))
    return True


async def write_of_a_poll(side: Side) -> Any:
    changes = [
        {"product_id": str(n), "product_name": f"product {n}", "price_e5": 36000, "is_available": True}
        for n in range(20)
    ]
    values = {"region": "elsewhere", "mode": "spot", "gpu_count": 1, "at": datetime.now(UTC)}
    async with side.database.write() as session:
        await session.execute(WRITE_CHANGES, {**values, "offers": orjson.dumps(changes).decode()})
    return True


async def place_of_a_wait(side: Side) -> Any:
    return await read_waits(side.database.raw, [UUID("00000000-0000-7000-8000-000000000001")], project_id=PROJECT)


async def whose_turn(side: Side) -> Any:
    offer = {"region": "region 1", "product_id": "1", "mode": "spot", "gpu_count": 1, "places": 4}
    async with side.database.read() as session:
        return (await session.execute(CHOOSE, offer)).all()


def audit(project: UUID, **how: Any) -> Question:
    async def ask(side: Side) -> Any:
        where = conditions_on_audit(AuditFilter(project_id=project, **how))
        return await newest_first(side.database, AuditEventRow, where, first=51)

    return ask


async def write_of_records(side: Side) -> Any:
    records = [
        AuditRecord(TEAM, UUID(int=2), "req_0123456789abcdef0123", "createInstance", bytes(16), f"inst_{new_id()}")
        for _ in range(32)
    ]
    await side.database.raw.execute(INSERT_BATCH, to_json(records))
    return True
