"""A process with a sequencer in it, to be killed: `python -m tests.server.events.leader URL SILENT_FOR_SECONDS`."""

import asyncio
import sys
from datetime import timedelta

from server.db.engine import Database
from server.db.signals import Signals
from server.events.sequencer import Sequencer


async def lead(url: str, silent_for: timedelta) -> None:
    database = Database(url)
    signals = Signals(database)
    signals.start()
    sequencer = Sequencer(database, signals, silent_for=silent_for)
    sequencer.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(lead(sys.argv[1], timedelta(seconds=float(sys.argv[2]))))
