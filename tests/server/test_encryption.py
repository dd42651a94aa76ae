"""Stored values: encrypted with the first key, readable with each, and in clear without one."""

import pytest
from pydantic import SecretStr, ValidationError

from server.config import Settings
from server.encryption import PLAIN, Cipher, UnknownEncryptionKey

OLD, NEW = "an old key that only tests encrypt with", "a new key that only tests encrypt with"


def cipher(*keys: str) -> Cipher:
    return Cipher.of(SecretStr(",".join(keys)))


def test_a_value_is_encrypted_with_the_first_key_and_read_with_each():
    stored = cipher(OLD).seal("hunter2")

    assert "hunter2" not in str(stored)
    assert cipher(OLD).seal("hunter2") != stored  # two equal values do not look equal
    assert [each.open(stored) for each in (cipher(OLD), cipher(NEW, OLD), cipher(OLD, NEW))] == ["hunter2"] * 3
    assert [each.is_current(stored) for each in (cipher(OLD), cipher(NEW, OLD), PLAIN)] == [True, False, False]


def test_a_value_of_a_key_that_is_missing_is_refused():
    stored = cipher(OLD).seal("hunter2")

    for without in (cipher(NEW), PLAIN):
        assert not without.is_known(stored)
        with pytest.raises(UnknownEncryptionKey, match=stored["key"]):
            without.open(stored)


def test_a_value_that_was_stored_without_a_key_is_read():
    assert PLAIN.seal("hunter2") == "hunter2"
    assert cipher(NEW).open("hunter2") == "hunter2"
    assert not cipher(NEW).is_current("hunter2")


def test_keys_are_long_and_are_not_printed():
    with pytest.raises(ValidationError, match="at least 32 random characters"):
        Settings(encryption_key=SecretStr(f"{NEW},short"))

    settings = Settings(encryption_key=SecretStr(f"{NEW}, {OLD}"))
    assert NEW not in f"{settings!r} {Cipher.of(settings.encryption_key)!r}"
    assert Cipher.of(settings.encryption_key).open(cipher(OLD).seal("x")) == "x"
