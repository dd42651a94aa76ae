"""Encrypts the stored environment variables again, after ENCRYPTION_KEY was set or changed."""

import typer

from server.config import Settings
from server.db import migrate
from server.encryption import PLAIN, Cipher, UnknownEncryptionKey
from server.errors import StartupProblem
from server.instances.env import reseal


async def encrypt(settings: Settings, database_url: str, *, undo: bool) -> None:
    """Store all values with the first key, or in clear; processes may run meanwhile. May be repeated."""
    if settings.encryption_key is None:
        raise StartupProblem("ENCRYPTION_KEY is not set")
    cipher = Cipher.of(settings.encryption_key)
    try:
        async with migrate.open_current(database_url) as database:
            changed = await reseal(database, cipher, to=PLAIN if undo else cipher)
    except UnknownEncryptionKey as error:
        raise StartupProblem(f"{error}; add that key behind the first one, and run this again") from None
    how = "in clear" if undo else "with the first key"
    typer.echo(f"the variables of {changed} instances and upgrades are now stored {how}")
