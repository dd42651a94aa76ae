"""`python -m server.novita.simulator`: the simulator as its own process."""

import argparse
import asyncio
import gc
import importlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from server.novita.simulator.options import SimulatorOptions
from server.novita.simulator.run import Simulator


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m server.novita.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per real second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state-file", type=Path, default=None, help="keep the world across restarts")
    parser.add_argument("--api-key", action="append", default=[], help="accept only these keys")
    parser.add_argument("--max-listeners", type=int, default=128)
    parser.add_argument("--stock-factor", type=int, default=1)
    given = parser.parse_args()
    options = SimulatorOptions(
        host=given.host,
        port=given.port,
        speed=given.speed,
        seed=given.seed,
        state_file=given.state_file,
        api_keys=tuple(given.api_key),
        max_listeners=given.max_listeners,
        stock_factor=given.stock_factor,
    )
    relax_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(serve(options))


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


def relax_collector() -> None:
    """Looking for cycles among a hundred thousand instances, where there are none, doubles the work of a create."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)


async def serve(options: SimulatorOptions) -> None:
    """Run until SIGINT or SIGTERM; the first line printed is the URL, for whoever started us."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Simulator(options) as simulator:
        sys.stdout.write(simulator.url + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
