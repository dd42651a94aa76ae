"""The key that all secrets are made with: given, or made once for a home."""

from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from server.webhooks.key import FILE, find_key, make_key
from server.webhooks.secrets import SigningKey


def test_a_home_has_one_key_for_ever_and_for_nobody_elses_eyes(tmp_path: Path):
    home = tmp_path / "home"
    assert find_key(None, home) is None

    make_key(home)
    key = find_key(None, home)
    make_key(home)

    assert key is not None
    assert find_key(None, home) == key
    assert (home / FILE).stat().st_mode & 0o777 == 0o600


def test_the_setting_wins_over_the_home(tmp_path: Path):
    make_key(tmp_path)
    assert find_key(SecretStr("given by somebody"), tmp_path) == SigningKey(b"given by somebody")


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
