"""Options of a simulator."""

from dataclasses import dataclass
from pathlib import Path

from server.simulator.dialect import Dialect
from server.simulator.faults import Fault


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """The defaults suit a demonstration on a laptop."""

    host: str = "127.0.0.1"
    # 0 takes a free port, so that parallel tests do not collide.
    port: int = 0
    # Empty: any non-empty Bearer key is accepted.
    api_keys: tuple[str, ...] = ()
    # Sends no X-Simulator-World header, so that clients take it for the real provider.
    is_anonymous: bool = False
    # Simulated seconds per real second. At 1 an instance runs after 6 to 8 seconds.
    speed: float = 1.0
    # The same seed and the same requests give the same prices, delays, clusters and faults.
    seed: int = 1
    # File for the state across restarts; None keeps it in memory only.
    state_file: Path | None = None
    faults: tuple[Fault, ...] = ()
    # What the provider does where its real behaviour is not known.
    dialect: Dialect = Dialect()  # noqa: RUF009 - frozen
    # Listening sockets cost file descriptors; further endpoints share one listener that always returns 200.
    max_listeners: int = 128
    # The largest relative change of a price; 0 for fixed prices.
    price_drift: float = 0.05
    # Simulated seconds from the notice to the reclaim of a spot instance, as the provider promises.
    spot_notice: float = 3600.0
    # According to one public client, names have letters, digits and hyphens only.
    strict_names: bool = True
    # A TOML file of calls at simulated times: see docs/simulator.md.
    scenario: Path | None = None
    # Multiplies the stock of every product, for load tests.
    stock_factor: int = 1
