"""What the log addresses of instances serve: plain text that grows, in whole or in parts (Range)."""

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from server.simulator.models import Instance
from server.simulator.world import World

LOGS = ("instance", "system")
# Simulated seconds between two lines that a running container writes.
LINE_SECONDS = 5.0
LINES_MAX = 10_000
RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def serve_log(world: World) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        """No key is needed, as the address is known to the account only."""
        world.advance()
        instance = world.instances.get(str(request.path_params["id"]))
        which = str(request.path_params["which"])
        if instance is None or which not in LOGS:
            return Response("no such log\n", 404, media_type="text/plain")
        text = log_text(world, instance, which).encode()
        return _in_range(text, request.headers.get("range", ""))

    return serve


def log_text(world: World, instance: Instance, which: str) -> str:
    created, started = int(instance.created_at), int(instance.last_started_at)
    lines: list[str] = []
    if which == "system":
        lines.append(f"{created} created {instance.name} on {instance.product_name}")
        if instance.starts:
            lines.append(f"{started} started {instance.image_url}, run {instance.starts}")
        if instance.error_message:
            lines.append(f"{int(instance.last_stopped_at)} {instance.error_message}")
    elif instance.status == "running":
        steps = [f"working, step {number}" for number in range(1, _steps(world, instance) + 1)]
        lines.append(f"run {instance.starts}: {instance.image_url}")
        lines += steps
    # Each behind the lines that were there when it was added: a log only grows.
    for added, (place, line) in enumerate(world.log_lines.get((instance.id, which), [])):
        lines.insert(place + added, line)
    return "".join(f"{line}\n" for line in lines)


def add_line(world: World, instance: Instance, which: str, line: str) -> int:
    """Returns how many lines were added to that log."""
    added = world.log_lines.setdefault((instance.id, which), [])
    added.append((log_text(world, instance, which).count("\n") - len(added), line))
    return len(added)


def _steps(world: World, instance: Instance) -> int:
    seconds = max(0.0, world.clock.wall() - instance.last_started_at) * world.clock.speed
    return min(LINES_MAX, int(seconds / LINE_SECONDS))


def _in_range(text: bytes, wanted: str) -> Response:
    found = RANGE.fullmatch(wanted.strip())
    if found is None:
        return Response(text, media_type="text/plain")
    first, last = found.groups()
    begin = int(first) if first else max(0, len(text) - int(last or 0))
    if begin >= len(text):
        return Response(status_code=416, headers={"content-range": f"bytes */{len(text)}"})
    part = text[begin : int(last) + 1] if first and last else text[begin:]
    shown = f"bytes {begin}-{begin + len(part) - 1}/{len(text)}"
    return Response(part, 206, headers={"content-range": shown}, media_type="text/plain")
