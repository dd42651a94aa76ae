"""`python -m server.simulator`: the simulator as its own process."""

import argparse
import asyncio
import gc
import importlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from server.simulator.dialect import Dialect
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m server.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per real second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state-file", type=Path, default=None, help="keep the world across restarts")
    parser.add_argument("--api-key", action="append", default=[], help="accept only these keys")
    parser.add_argument("--max-listeners", type=int, default=128)
    parser.add_argument("--stock-factor", type=int, default=1)
    parser.add_argument("--anonymous", action="store_true", help="be taken for the real provider")
    parser.add_argument("--dialect", type=Dialect.parse, default=Dialect(), help="such as first_page=0,total=missing")
    arguments = parser.parse_args()
    options = SimulatorOptions(
        host=arguments.host,
        port=arguments.port,
        speed=arguments.speed,
        seed=arguments.seed,
        state_file=arguments.state_file,
        api_keys=tuple(arguments.api_key),
        max_listeners=arguments.max_listeners,
        stock_factor=arguments.stock_factor,
        dialect=arguments.dialect,
        is_anonymous=arguments.anonymous,
    )
    relax_collector()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(serve(options))


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


def relax_collector() -> None:
    """Searching for cycles among 100,000 instances, which have none, doubles the cost of a create."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)


async def serve(options: SimulatorOptions) -> None:
    """Run until SIGINT or SIGTERM; the first line printed is the URL, for the parent process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Simulator(options) as simulator:
        sys.stdout.write(simulator.url + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    main()
