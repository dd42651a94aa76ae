"""How one simulator is set up."""

from dataclasses import dataclass
from pathlib import Path

from server.novita.simulator.faults import Fault


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """Every choice has a default that makes a pleasant demonstration on a laptop."""

    host: str = "127.0.0.1"
    # 0 asks the system for a free port, so that parallel tests never meet.
    port: int = 0
    # Empty: any non-empty Bearer key is accepted.
    api_keys: tuple[str, ...] = ()
    # Simulated seconds per real second. At 1 an instance runs after 6 to 8 seconds.
    speed: float = 1.0
    # The same seed and the same calls give the same prices, delays, places and chances.
    seed: int = 1
    # Where to keep the world across restarts; None forgets it.
    state_file: Path | None = None
    faults: tuple[Fault, ...] = ()
    # Listening sockets cost descriptors; further endpoints share one listener that always answers 200.
    max_listeners: int = 128
    # The largest change of a price, as a part of it; 0 holds prices still.
    price_drift: float = 0.05
    # What the provider promises between the notice and the reclaim of a spot instance, in simulated seconds.
    spot_notice: float = 3600.0
    # One public client says that names hold letters, digits and hyphens only.
    strict_names: bool = True
    # Stock of every product is multiplied by it; a load test needs more GPUs than a demonstration.
    stock_factor: int = 1
