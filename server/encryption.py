"""Encrypts stored values with the keys of ENCRYPTION_KEY.

A stored value is a string, or an object `{"key": ..., "sealed": ...}` with the id of its key and a Fernet token. So
values that were stored without a key stay readable, and no text of a caller can be taken for an encrypted one.
"""

import base64
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from server.errors import PilotlightError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


class UnknownEncryptionKey(PilotlightError):
    """A stored value needs a key that this process does not have."""


@dataclass(frozen=True)
class Cipher:
    """Encrypts with the first key; decrypts with each. Without keys, values are stored as they are."""

    keys: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, setting: SecretStr | None) -> "Cipher":
        if setting is None:
            return cls()
        return cls(tuple(key.strip().encode() for key in setting.get_secret_value().split(",")))

    def seal(self, text: str) -> Any:
        """The JSON value to store."""
        if not self._fernets:
            return text
        key, fernet = next(iter(self._fernets.items()))
        return {"key": key, "sealed": fernet.encrypt(text.encode()).decode()}

    def open(self, stored: Any) -> str:
        """The text of a stored value. Raises UnknownEncryptionKey."""
        if isinstance(stored, str):
            return stored
        fernet = self._fernets.get(stored["key"])
        if fernet is None:
            raise UnknownEncryptionKey(f"ENCRYPTION_KEY does not have the key {stored['key']}")
        return fernet.decrypt(stored["sealed"]).decode()

    def is_current(self, stored: Any) -> bool:
        """Whether the value is stored as `seal` would store it now."""
        return (None if isinstance(stored, str) else stored["key"]) == next(iter(self._fernets), None)

    def is_known(self, stored: Any) -> bool:
        """Whether `open` can decrypt the value."""
        return isinstance(stored, str) or stored["key"] in self._fernets

    @cached_property
    def _fernets(self) -> "dict[str, Fernet]":
        """By the id of the key, in the order of the setting."""
        if not self.keys:
            return {}
        from cryptography.fernet import Fernet  # noqa: PLC0415 - 32 ms, of use only with a key

        found: dict[str, Fernet] = {}
        for key in self.keys:
            derived = hashlib.sha256(b"pilotlight encryption\0" + key).digest()
            found[hashlib.sha256(b"key id\0" + derived).hexdigest()[:8]] = Fernet(base64.urlsafe_b64encode(derived))
        return found


PLAIN = Cipher()
