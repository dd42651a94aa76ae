"""A process with a sequencer, for tests that kill it: `python -m tests.server.events.leader URL SILENT_FOR_SECONDS`."""

import asyncio
import sys
from datetime import timedelta

from server.db.database import Database
from server.db.notify import Notifier
from server.events.sequencer import Sequencer


async def lead(url: str, silent_for: timedelta) -> None:
    database = Database(url)
    signals = Notifier(database)
    signals.start()
    sequencer = Sequencer(database, signals, silence_timeout=silent_for)
    sequencer.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(lead(sys.argv[1], timedelta(seconds=float(sys.argv[2]))))
