"""What a standby costs and what it takes off the primary, next to a server without one.

    python -m bench.replication [--seconds 4] [--writers 16]

One primary and one streaming replica on this machine, so both share its processors: real machines do better. Durable
commits (fsync on). Writes are rows with their events, as the API commits them; reads are pages of 50 instances.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from datetime import timedelta

import psutil

from server.clock import new_id
from server.db.database import Database
from server.db.migrate import upgrade
from server.events.event import EventType
from server.events.outbox import append
from server.instances.queries.instances import InstanceFilter
from tests.ha.streaming import PostgresServer, primary_and_replica
from tests.support.pages import page_of_instances

PROJECT = new_id()
INSTANCES = """
    INSERT INTO instance (id, project_id, name, status, ready_at, product_name, gpu_count, rootfs_size_gb, billing,
                          image)
    SELECT gen_random_uuid(), '{project}', 'worker-' || n, 'READY', now(), 'RTX 4090 24GB', 1, 60, 'SPOT', 'nginx'
    FROM generate_series(1, 5000) AS n
"""


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=4.0)
    arguments.add_argument("--writers", type=int, default=16)
    given = arguments.parse_args()
    async with primary_and_replica(fsync=True) as (primary, replica):
        await primary.ask("CREATE DATABASE pilotlight")
        await upgrade(primary.url("pilotlight"))
        await primary.ask(f"INSERT INTO project (id, name) VALUES ('{PROJECT}', 'bench')", "pilotlight")
        await primary.ask(INSTANCES.format(project=PROJECT), "pilotlight")
        await writes(primary, given.seconds, given.writers)
        await reads(primary, replica, given.seconds)
    return 0


async def writes(primary: PostgresServer, seconds: float, writers: int) -> None:
    """Rounds alternate, so that whatever else the machine does hits all of them."""
    ways = {"asynchronous replica": ("", "on"), "commit waits for its disk": ("*", "on"),
            "commit waits until it can be read there": ("*", "remote_apply")}  # fmt: skip
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        for name, (names, commit) in ways.items():
            await primary.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            await primary.ask(f"ALTER SYSTEM SET synchronous_commit = '{commit}'")
            await primary.ask("SELECT pg_reload_conf()")
            await asyncio.sleep(0.5)
            rates[name].append(await _write(primary.url("pilotlight"), seconds, writers))
    await primary.ask("ALTER SYSTEM SET synchronous_standby_names = ''")
    await primary.ask("ALTER SYSTEM SET synchronous_commit = 'on'")
    await primary.ask("SELECT pg_reload_conf()")
    base = statistics.median(next(iter(rates.values())))
    print(f"commits of {writers} writers")
    for name, measured in rates.items():
        rate = statistics.median(measured)
        print(f"  {name:42} {rate:8,.0f}/s   {rate / base:.2f}")


async def _write(url: str, seconds: float, writers: int) -> float:
    database = Database(url, pool_size=writers)
    over = time.monotonic() + seconds
    done = 0

    async def work() -> None:
        nonlocal done
        instance_id = new_id()
        while time.monotonic() < over:
            async with database.write() as session:
                await append(
                    session,
                    type=EventType.INSTANCE_CHANGED,
                    project_id=PROJECT,
                    instance_id=instance_id,
                    data={"n": done},
                )
            done += 1

    await asyncio.gather(*(work() for _ in range(writers)))
    await database.close()
    return done / seconds


async def reads(primary: PostgresServer, replica: PostgresServer, seconds: float) -> None:
    print("pages of 50 instances, 4 readers, while a writer commits")
    for name, read_url in (("all from the primary", None), ("from the replica", replica.url("pilotlight"))):
        database = Database(primary.url("pilotlight"), read_url=read_url, replica_timeout=timedelta(milliseconds=100))
        before, began = _cpu(primary), time.monotonic()
        pages, over, writing = 0, time.monotonic() + seconds, asyncio.create_task(_trickle(primary, seconds))

        async def read(database: Database = database, over: float = over) -> None:
            nonlocal pages
            while time.monotonic() < over:
                async with database.read_from_replica_if_fresh() as session:
                    await page_of_instances(session, project_id=PROJECT, wanted=InstanceFilter(), first=50)
                pages += 1

        await asyncio.gather(*(read() for _ in range(4)))
        await writing
        spent = (_cpu(primary) - before) / pages * 1000
        print(f"  {name:42} {pages / (time.monotonic() - began):8,.0f}/s   {spent:.2f} ms of the primary's CPU each")
        await database.close()


async def _trickle(primary: PostgresServer, seconds: float) -> None:
    database, over = Database(primary.url("pilotlight"), pool_size=2), time.monotonic() + seconds
    while time.monotonic() < over:
        async with database.write() as session:
            await append(session, type=EventType.INSTANCE_CHANGED, project_id=PROJECT, instance_id=new_id(), data={})
        await asyncio.sleep(0.01)
    await database.close()


def _cpu(server: PostgresServer) -> float:
    """Seconds that its processes have used, the ended ones too."""
    assert server.process is not None
    top = psutil.Process(server.process.pid)
    own = top.cpu_times()
    return own.children_user + own.children_system + sum(sum(each.cpu_times()[:2]) for each in top.children())


if __name__ == "__main__":
    print(json.dumps({"cores": psutil.cpu_count(), "busy already": psutil.getloadavg()[0]}))
    sys.exit(asyncio.run(main()))
