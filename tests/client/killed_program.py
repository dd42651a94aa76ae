"""kill -9 of a `with` program, in real time: its machine must be gone at the provider at heartbeat + 10 s.

`make killed-program` takes a minute and a half; the suite's test of the same moves time in the database instead.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from pilotlight_client import AsyncPilotlight

from tests.support.processes import Up, control, up
from tests.support.waiting import until

HEARTBEAT = 60.0  # seconds, the least that a lifetime may have
GRACE = 10.0
PROGRAM = f"""
import time
from datetime import timedelta
from pilotlight_client import Pilotlight
with Pilotlight() as client, client.instance(
    name="killed", product="RTX 4090 24GB", image="nginx", lifetime={{"heartbeat": timedelta(seconds={HEARTBEAT})}}
) as machine:
    print(machine.instance.novita_id, flush=True)
    time.sleep(600)
"""


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with up(Path(folder) / "home") as running:
            took = await measure(running)
    is_good = took <= HEARTBEAT + GRACE
    limit = HEARTBEAT + GRACE
    sys.stdout.write(
        f"{'PASS' if is_good else 'FAIL'}: the machine was gone {took:.1f} s after kill -9 (limit {limit:.0f} s)\n"
    )
    return 0 if is_good else 1


async def measure(running: Up) -> float:
    """Seconds from the kill until the provider has no machine."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        env={"PILOTLIGHT_URL": running.graphql_url, "PILOTLIGHT_TOKEN": running.token},
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    machine = (await program.stdout.readline()).decode().strip()
    assert machine in await machines(running)
    program.kill()
    killed_at = time.monotonic()
    await program.wait()
    async with AsyncPilotlight(running.graphql_url, running.token) as client:

        async def is_gone() -> bool:
            return machine not in await machines(running)

        await until(is_gone, within=3 * HEARTBEAT, pause=0.2)
        took = time.monotonic() - killed_at
        sys.stdout.write(f"the instance is {(await client.get('killed')).status}\n")
    return took


async def machines(running: Up) -> set[str]:
    """Those that the provider bills."""
    shown = await control(running.ready["simulatorUrl"], "machines")
    return {each["id"] for each in shown["machines"] if each["status"] not in ("removed", "toRemove", "removing")}


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
