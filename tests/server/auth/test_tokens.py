"""Tokens: only hashes are stored, and an expired or revoked token is refused."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from server.auth.caller import Caller
from server.auth.tokens import TOPIC, Tokens, any_token, create_token, hash_of, new_secret
from server.clock import new_id, now
from server.db.database import Database, notify_after_commit
from server.db.notify import Notifier
from server.db.pool import RawPool
from server.enums import Role
from tests.support.waiting import until
from tests.support.world import World


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements that go to the database meanwhile."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    fetch = RawPool.fetch

    async def noted(pool: RawPool, statement: str, *values: Any) -> Any:
        statements.append(" ".join(statement.split()))
        return await fetch(pool, statement, *values)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RawPool, "fetch", noted)
            yield statements
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


async def test_only_a_hash_of_the_secret_is_stored(world: World):
    secret, caller = await world.new_token("default", Role.ADMIN)

    row = await world.one("SELECT * FROM token WHERE id = $1", caller.token_id)
    assert row["hash"] == hash_of(secret)
    assert row["hint"] == secret[-4:]
    assert secret not in str(dict(row))
    assert secret[3:-4] not in str(dict(row))


def test_secrets_are_recognisable_and_never_the_same():
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(secret.startswith("pl_") and len(secret) == 46 for secret in secrets)


async def test_a_token_names_its_project_and_role(world: World):
    secret, caller = await world.new_token("team", Role.READER)
    assert await Tokens(world.database).caller_of(secret) == caller
    assert caller.role is Role.READER


@pytest.mark.parametrize("secret", ["", "pl_", "pl_nobody", "\x00", "ünïcode"])
async def test_an_unknown_token_is_refused(world: World, secret: str):
    assert await Tokens(world.database).caller_of(secret) is None


@pytest.mark.parametrize("change", ["expires_at = now() - interval '1 second'", "revoked_at = now()"])
async def test_an_expired_or_revoked_token_that_is_not_cached_is_refused_at_once(world: World, change: str):
    secret, caller = await world.new_token()
    await world.execute(f"UPDATE token SET {change} WHERE id = $1", caller.token_id)
    assert await Tokens(world.database).caller_of(secret) is None


async def test_a_token_that_is_known_costs_no_query(world: World):
    secret, caller = await world.new_token()
    tokens = Tokens(world.database)
    assert await tokens.caller_of(secret) == caller
    await tokens.close()

    with counted(world.database) as statements:
        assert [await tokens.caller_of(secret) for _ in range(20)] == [caller] * 20
    assert statements == []


async def test_concurrent_requests_with_one_token_share_one_lookup(world: World):
    secret, caller = await world.new_token()
    tokens = Tokens(world.database)
    with counted(world.database) as statements:
        assert await asyncio.gather(*(tokens.caller_of(secret) for _ in range(50))) == [caller] * 50
        await tokens.close()
    assert [each for each in statements if "token.hash" in each and each.startswith("SELECT")] == statements[:1]


async def test_a_revocation_reaches_every_process(world: World, database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.auth.tokens.CALLER_TTL", timedelta(hours=1))
    secret, caller = await world.new_token()
    other = Notifier(Database(database_url))
    other.start()
    await until(lambda: other.is_listening and world.notifier.is_listening)
    here, there = Tokens(world.database, world.notifier), Tokens(other._database, other)
    try:
        assert await here.caller_of(secret) == await there.caller_of(secret) == caller
        async with world.database.write() as session:
            await session.execute(text("UPDATE token SET revoked_at = now()"))
            notify_after_commit(session, TOPIC)

        assert await here.caller_of(secret) is None

        async def is_refused() -> bool:
            return await there.caller_of(secret) is None

        await until(is_refused)
    finally:
        await here.close()
        await there.close()
        await other.stop()
        await other._database.close()


async def test_a_token_revoked_without_a_signal_is_refused_after_the_cache_ttl(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("server.auth.tokens.CALLER_TTL", timedelta(milliseconds=200))
    secret, _ = await world.new_token()
    tokens = Tokens(world.database)
    assert await tokens.caller_of(secret) is not None
    await world.execute("UPDATE token SET revoked_at = now()")

    async def is_refused() -> bool:
        return await tokens.caller_of(secret) is None

    await until(is_refused)
    await tokens.close()


async def test_a_known_token_expires_by_the_clock(world: World, monkeypatch: pytest.MonkeyPatch):
    secret, _ = await world.new_token()
    await world.execute("UPDATE token SET expires_at = now() + interval '1500 milliseconds'")
    tokens = Tokens(world.database)
    assert await tokens.caller_of(secret) is not None
    later = now() + timedelta(seconds=2)
    monkeypatch.setattr("server.auth.tokens.now", lambda: later)
    with counted(world.database) as statements:
        assert await tokens.caller_of(secret) is None
    assert [each for each in statements if each.startswith("SELECT")] == []
    await tokens.close()


async def test_a_token_that_expires_later_is_good_until_then(world: World):
    secret = new_secret()
    async with world.database.write() as session:
        await create_token(
            session,
            project="p",
            name="t",
            role=Role.READER,
            secret=secret,
            expires_at=now() + timedelta(hours=1),
        )
    assert await Tokens(world.database).caller_of(secret) is not None


async def test_the_last_use_is_noted_but_not_at_every_request(world: World):
    secret, caller = await world.new_token()
    tokens = Tokens(world.database)
    await tokens.caller_of(secret)
    await tokens.close()
    first = await world.value("SELECT last_used_at FROM token WHERE id = $1", caller.token_id)
    await tokens.caller_of(secret)
    await tokens.close()

    assert first is not None
    assert await world.value("SELECT last_used_at FROM token WHERE id = $1", caller.token_id) == first


async def test_the_same_secret_again_is_the_same_token(world: World):
    secret = new_secret()
    async with world.database.write() as session:
        first = await create_token(session, project="p", name="t", role=Role.READER, secret=secret)
    async with world.database.write() as session:
        assert await create_token(session, project="p", name="t", role=Role.READER, secret=secret) == first
    assert await world.value("SELECT count(*) FROM project WHERE name = 'p'") == 1


async def test_only_valid_tokens_count_as_able_to_call(world: World):
    async with world.database.read() as session:
        assert await any_token(session)
    await world.execute("UPDATE token SET revoked_at = now()")
    async with world.database.read() as session:
        assert not await any_token(session)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.READER, {Role.READER}),
        (Role.OPERATOR, {Role.READER, Role.OPERATOR}),
        (Role.ADMIN, {Role.READER, Role.OPERATOR, Role.ADMIN}),
    ],
)
def test_each_role_may_do_what_those_before_it_may(role: Role, may: set[Role]):
    caller = Caller(project_id=new_id(), token_id=new_id(), role=role)
    assert {each for each in Role if caller.may(each)} == may
