"""Where the key comes from that all webhook secrets are made with: a setting, or a file in the home of `up`."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from server.webhooks.secrets import SigningKey

FILE = "webhook.key"


def find_key(given: SecretStr | None, home: Path) -> SigningKey | None:
    """The setting's, else the home's; None when there is neither."""
    if given is not None:
        return SigningKey(given.get_secret_value().encode())
    try:
        found = (home.expanduser() / FILE).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return SigningKey(found.encode()) if found else None


def make_key(home: Path) -> None:
    """Once for a home: with another key, all secrets that receivers know would no longer sign."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (home / FILE).exists():
        return
    # Under another name first, then linked: killed in between, or made twice at once, there is never half a key.
    handle, name = tempfile.mkstemp(dir=home, prefix=f".{FILE}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):
            os.link(name, home / FILE)
    finally:
        os.unlink(name)
