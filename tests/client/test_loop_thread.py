"""The thread of the synchronous client: a stream that is left while it waits."""

import subprocess
import sys

PROGRAM = """
import asyncio, os, signal, threading
from pilotlight_client.loop_thread import LoopThread

async def numbers():
    try:
        while True:
            yield 1
            await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.2)  # as when a connection is closed
        print("closed", flush=True)

thread = LoopThread()
items = thread.iterate(numbers())
next(items)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    next(items)
except KeyboardInterrupt:
    print("interrupted", flush=True)
thread.stop()
"""


def test_ctrl_c_while_a_stream_waits_is_raised_as_it_is():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["closed", "interrupted"], done.stderr
