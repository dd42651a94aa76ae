"""CPU of an idle `pilotlight up`: our processes and PostgreSQL's told apart, in percent of one core, and wake-ups.

    python -m bench.idle [--seconds 60] [--settle 20]

Ends with 1 if our own processes use more than is wanted. CPU time does not depend on what else the machine does.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

WANTED = 0.3  # percent of a core
PILOTLIGHT = str(Path(sys.executable).with_name("pilotlight"))


def main(seconds: float, settle: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="pilotlight-bench-") as folder:
        ready = Path(folder) / "ready.json"
        started = subprocess.Popen(
            [PILOTLIGHT, "up", "--port", "0", "--home", f"{folder}/home", "--ready-file", str(ready)],
            env={"PATH": os.environ.get("PATH", os.defpath), "LOG_LEVEL": "warning"},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            while not ready.exists():
                if started.poll() is not None:
                    raise SystemExit(f"it ended with {started.returncode}")
                time.sleep(0.1)
            time.sleep(settle)
            before, began = _used(started.pid), time.monotonic()
            time.sleep(seconds)
            after, took = _used(started.pid), time.monotonic() - began
        finally:
            started.terminate()
            started.wait()
    share: dict[str, float] = {}
    for name in ("pilotlight", "postgres"):
        cpu, wakeups = (sum(each[place] for each in after[name].values()) for place in (0, 1))
        # What ended in between was counted before and is not now: a difference of threads that live on.
        cpu -= sum(before[name][key][0] for key in after[name].keys() & before[name].keys())
        wakeups -= sum(before[name][key][1] for key in after[name].keys() & before[name].keys())
        share[name] = 100 * cpu / took
        print(f"{name:12} {share[name]:5.2f} % of a core, {wakeups / took:5.1f} wake-ups a second")
    is_enough = share["pilotlight"] <= WANTED
    print(f"{'PASS' if is_enough else 'FAIL'}: at most {WANTED} % of a core when idle")
    return is_enough


Threads = dict[tuple[int, str], tuple[float, int]]


def _used(pid: int) -> dict[str, Threads]:
    """CPU seconds and wake-ups of every thread so far."""
    found: dict[str, Threads] = {"pilotlight": {}, "postgres": {}}
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        name = "postgres" if "postgres" in process.name() else "pilotlight"
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            nanoseconds = int((thread / "schedstat").read_text().split()[0])
            status = (thread / "status").read_text()
            wakeups = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
            found[name][process.pid, thread.name] = (nanoseconds / 1e9, wakeups)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=20.0, help="seconds between the start and the measurement")
    options = parser.parse_args()
    sys.exit(0 if main(options.seconds, options.settle) else 1)
