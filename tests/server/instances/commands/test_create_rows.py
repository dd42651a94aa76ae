"""The batched statement writes the same rows as a session would."""

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id, now
from server.enums import OperationKind
from server.instances import operations, transitions
from server.instances.commands.create import fields_of, request_of
from server.instances.commands.create_rows import Conflict
from server.instances.drafts import CreateDraft, Port
from server.instances.quote import Defaults
from server.queue.enqueue import enqueue
from server.queue.kinds import CreateInstance
from tests.support.world import RTX, World

TABLES = ("instance", "operation", "outbox", "job", "delivery")
# Another one in every row, or drawn by the database.
OWN = {"id", "instance_id", "operation_id", "event_id", "seq", "run_at", "due_at", "body"}


@pytest.mark.parametrize("webhook_url", [None, "http://127.0.0.1:9/hook"])
async def test_the_rows_are_the_same_as_those_of_a_session(world: World, webhook_url: str | None):
    one = await _fields(world, "same", webhook_url)
    async with world.database.write() as session:
        await _write(session, one, world.caller)
    by_session = await _rows(world)
    await world.execute("DELETE FROM job")
    await world.execute("DELETE FROM delivery")
    await world.execute("DELETE FROM operation")
    await world.execute("DELETE FROM instance")
    await world.execute("DELETE FROM outbox")

    await world.creates.insert(await _fields(world, "same", webhook_url), request_of(_draft("same"), world.caller))

    assert await _rows(world) == by_session
    assert [row["type"] for row in by_session["outbox"]] == ["instance.created", "operation.started"]
    assert len(by_session["delivery"]) == (webhook_url is not None)


async def test_what_is_taken_leaves_nothing_behind(world: World):
    asked = request_of(_draft("taken"), world.caller)
    await world.creates.insert(await _fields(world, "taken"), asked)
    before = await world.counts()

    with pytest.raises(Conflict):
        await world.creates.insert(await _fields(world, "taken"), asked)
    keyed = request_of(replace(_draft("taken"), idempotency_key="k"), world.caller)
    with pytest.raises(asyncpg.UniqueViolationError):
        await world.creates.insert(await _fields(world, "taken"), keyed)

    assert await world.counts() == before


async def test_creates_that_come_together_are_one_commit(world: World):
    await world.creates.insert(await _fields(world, "first"), request_of(_draft("first"), world.caller))
    instances = [await _fields(world, f"one-{number}") for number in range(40)]

    await asyncio.gather(*(world.creates.insert(each, request_of(_draft("-"), world.caller)) for each in instances))

    commits = await world.value("SELECT count(DISTINCT xmin::text) FROM instance WHERE name LIKE 'one-%'")
    assert commits <= 3  # the first is written alone, and the rest share the next write
    assert await world.value("SELECT count(*) FROM instance WHERE name LIKE 'one-%'") == 40
    assert await world.value("SELECT count(*) FROM job") == 41


async def test_one_that_the_tables_forbid_is_refused_alone(world: World):
    good = [await _fields(world, f"good-{number}") for number in range(10)]
    broken = [await _fields(world, f"broken-{number}") for number in range(3)]
    for each in broken:
        each["gpu_count"] = 99
    together = [*good[:5], *broken, *good[5:]]

    answers = await asyncio.gather(
        *(world.creates.insert(each, request_of(_draft("-"), world.caller)) for each in together),
        return_exceptions=True,
    )

    refused = {each["name"] for each, answer in zip(together, answers, strict=True) if isinstance(answer, Exception)}
    assert refused == {"broken-0", "broken-1", "broken-2"}
    assert all(isinstance(each, asyncpg.CheckViolationError) for each in answers if isinstance(each, Exception))
    assert (await world.counts())["instance"] == (await world.counts())["operation"] == 10
    assert await world.value("SELECT count(*) FROM instance WHERE name LIKE 'good-%'") == 10


async def _write(session: AsyncSession, fields: dict[str, Any], by: Caller) -> None:
    operation_id = new_id()
    instance = await transitions.insert(session, fields, cause=transitions.Cause(operation_id, by.token_id))
    operation = await operations.begin(
        session,
        instance,
        OperationKind.CREATE,
        by=by.token_id,
        id=operation_id,
        estimated_ready_at=instance.estimated_ready_at,
    )
    work = CreateInstance(instance_id=instance.id, operation_id=operation.id)
    await enqueue(session, work, project_id=by.project_id, instance_id=instance.id)


def _draft(name: str) -> CreateDraft:
    return CreateDraft(
        name=name,
        product_name=RTX,
        image="nginx",
        env={"A": "ü", "B": "1"},
        ports=(Port(80, "http"),),
        labels={"team": "vision"},
        command="run 'it'",
    )


async def _fields(world: World, name: str, webhook_url: str | None = None) -> dict[str, Any]:
    defaults = Defaults(world.settings.default_regions, world.settings.estimated_ready_time)
    draft = replace(_draft(name), webhook_url=webhook_url)
    fields, _ = await fields_of(world.catalog, draft, by=world.caller, defaults=defaults)
    return {**fields, "estimated_ready_at": now()}


async def _rows(world: World) -> dict[str, list[dict[str, Any]]]:
    """Everything but what differs from row to row: ids and moments, also inside of JSON."""
    found = {}
    for table in TABLES:
        rows = await world.rows(f"SELECT * FROM {table} ORDER BY 1")
        found[table] = [_plain(dict(row)) for row in rows]
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in row.items():
        if name == "origin":
            continue  # whatever the log lines of the moment are bound to
        if name in OWN or name.endswith("_at") or name in ("status_since", "args"):
            plain[name] = value is not None
        elif name == "data":
            inner = orjson.loads(value)
            plain[name] = {key: _plain(each) if isinstance(each, dict) else each for key, each in inner.items()}
        else:
            plain[name] = value
    return plain
