"""The signing key that all webhook secrets derive from: configured, or generated once per home."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr

from server.webhooks.signing import (
    KEY_FILE,
    SigningKey,
    WrongSigningKey,
    find_key,
    make_key,
    projects_with_a_previous_key,
    projects_with_another_key,
    rotate,
    signing_secrets,
)
from tests.support.world import World

OLD, NEW = "the old key of sixteen", "the new key of sixteen"


def test_a_home_keeps_one_key_readable_by_its_owner_only(tmp_path: Path):
    home = tmp_path / "home"
    assert find_key(None, home) is None

    make_key(home)
    key = find_key(None, home)
    make_key(home)

    assert key is not None
    assert find_key(None, home) == key
    assert (home / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_the_setting_wins_over_the_home(tmp_path: Path):
    make_key(tmp_path)
    assert find_key(SecretStr("a given key"), tmp_path) == SigningKey(b"a given key")


def test_a_key_is_shown_nowhere():
    key = SigningKey(b"very secret indeed")
    assert "secret" not in f"{key!r} {key}"


def test_secrets_differ_by_project_by_salt_and_by_key():
    one, other = uuid4(), uuid4()
    key, wrong = SigningKey(b"a" * 16), SigningKey(b"b" * 16)
    secrets = {key.secret(one, b"1"), key.secret(one, b"2"), key.secret(other, b"1"), wrong.secret(one, b"1")}
    assert len(secrets) == 4
    assert key.check(b"1") != wrong.check(b"1")
    assert key.secret(one, b"1") == SigningKey(b"a" * 16).secret(one, b"1")


def key_of(setting: str) -> SigningKey:
    key = find_key(SecretStr(setting), Path("/nowhere"))
    assert key is not None
    return key


async def test_key_is_replaced_with_an_overlap_and_no_secret_is_lost(world: World):
    project_id = world.caller.project_id

    async def secrets(setting: str) -> list[bytes]:
        async with world.database.write() as session:
            return await signing_secrets(session, project_id, key_of(setting))

    first = await secrets(OLD)
    assert await secrets(f"{OLD},{NEW}") == await secrets(f"{NEW}, {OLD}") == first

    async with world.database.write() as session:
        assert await projects_with_a_previous_key(session, key_of(f"{NEW},{OLD}")) == 1
        rotated = await rotate(session, project_id, key_of(f"{NEW},{OLD}"), overlap=timedelta(days=1))
    assert await secrets(f"{NEW},{OLD}") == await secrets(f"{OLD},{NEW}") == [rotated, *first]
    for alone in (OLD, NEW):
        with pytest.raises(WrongSigningKey):
            await secrets(alone)

    await world.execute("UPDATE webhook_secret SET retires_at = now() - interval '1 s' WHERE retires_at IS NOT NULL")
    assert await secrets(NEW) == [rotated]
    async with world.database.read() as session:
        assert await projects_with_a_previous_key(session, key_of(f"{NEW},{OLD}")) == 0
        assert await projects_with_another_key(session, key_of(NEW)) == 0


async def test_key_with_a_comma_from_before_lists_keeps_its_secrets(world: World):
    whole = f"{OLD},{NEW}"
    async with world.database.write() as session:
        before = await signing_secrets(session, world.caller.project_id, SigningKey(whole.encode()))
    async with world.database.write() as session:
        assert await signing_secrets(session, world.caller.project_id, key_of(whole)) == before
