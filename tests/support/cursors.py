"""Cursors of a database that the test itself reads."""

from server.db.database import Database
from server.db.seals import Seals
from server.events.cursors import Cursors
from server.events.replay import cursor_now


async def head_cursor(database: Database) -> str:
    """The cursor behind the newest event."""
    seals = Seals(database)
    await seals.load()
    async with database.read() as session:
        return Cursors(seals).of_state(await cursor_now(session))
