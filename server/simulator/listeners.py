"""Loopback listeners for the ports of running instances: first they refuse, then return 502, then 200."""

import asyncio
import heapq
import re
import socket
from dataclasses import dataclass, field
from typing import cast

import orjson

from server.simulator.models import Instance, fraction
from server.simulator.world import World

# Simulated seconds: from running to listening, and from then to 200.
REFUSE_SECONDS = 2.0
BAD_GATEWAY_SECONDS = 2.5
# Where the machine's own disk is, for an endpoint.
OWN_DISK = "/disk"

BAD_GATEWAY_PAGE = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
REQUEST_HEAD_MAX = 65_536
LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})", re.IGNORECASE)
# A body after these would be read as the next response.
WITHOUT_BODY = frozenset({204, 304})


@dataclass(slots=True, eq=False)
class Listener:
    """One container port of one instance. Bound from the start, so that its port is known while it refuses."""

    instance: Instance
    port: int
    kind: str
    socket: socket.socket
    opens_at: float
    answers_at: float
    server: asyncio.Server | None = None
    # Once its server starts, only the server may close the socket.
    is_opening: bool = False
    closed: bool = False
    live: set[asyncio.Transport] = field(default_factory=set[asyncio.Transport])


class EndpointListeners:
    """Opens and closes listeners with their instances, at most `limit` at a time."""

    def __init__(self, world: World, *, host: str, limit: int) -> None:
        self._world = world
        # Of network storages and of machines' own disks, by name. Not stored: they end with the simulator.
        self._files: dict[str, dict[str, bytes]] = {}
        self._host = host
        self._limit = limit
        self._listeners: dict[str, list[Listener]] = {}
        self._count = 0
        self._due: list[tuple[float, int, Listener]] = []
        self._pushed = 0
        self._shared: dict[str, Listener] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, instance: Instance) -> None:
        """Assign an address to every port without one; needs a running event loop."""
        for port, kind in self._world.ports_of(instance):
            if str(port) in instance.endpoints:
                continue
            number = self._open_own(instance, port, kind) or self._open_shared(instance, kind)
            instance.loopback[str(port)] = number
            at = f"{self._host}:{number}"
            instance.endpoints[str(port)] = f"http://{at}" if kind == "http" else at
        self._world.mark_changed(instance)

    def trim(self, instance: Instance) -> None:
        """Close listeners of ports that were removed from the instance."""
        ports = self._world.ports_of(instance)
        kept: list[Listener] = []
        for listener in self._listeners.pop(instance.id, []):
            if (listener.port, listener.kind) in ports:
                kept.append(listener)
            else:
                self._count -= 1
                self._shut(listener)
        if kept:
            self._listeners[instance.id] = kept
        instance.endpoints = {
            port: at
            for port, at in instance.endpoints.items()
            if (int(port), "http" if at.startswith("http:") else "tcp") in ports
        }

    def close(self, instance: Instance) -> None:
        for listener in self._listeners.pop(instance.id, []):
            self._count -= 1
            self._shut(listener)

    def reopen(self) -> None:
        """After a restart of the simulator: use the same ports if they are free."""
        for instance in self._world.instances.values():
            if instance.is_running:
                instance.endpoints = {}
                self.open(instance)

    def next_due(self) -> float | None:
        return self._due[0][0] if self._due else None

    def listen_where_due(self) -> None:
        now = self._world.clock.now()
        while self._due and self._due[0][0] <= now:
            self._listen(heapq.heappop(self._due)[2])

    async def stop(self) -> None:
        # Not cancelled: a server cancelled while it starts would keep listening, with no reference to close it.
        await asyncio.gather(*self._tasks)
        for listener in [*self._shared.values(), *(each for rows in self._listeners.values() for each in rows)]:
            self._shut(listener)
        self._listeners.clear()
        self._shared.clear()

    def mode(self, listener: Listener) -> str:
        """The current behaviour of this listener: ok, badGateway, errorPage, hang, reset, or a status number."""
        mode = self._world.endpoint_modes.get((listener.instance.id, listener.port), "")
        return mode or ("ok" if self._world.clock.now() >= listener.answers_at else "badGateway")

    def file(self, instance: Instance, method: bytes, path: str, body: bytes) -> tuple[int, str, bytes] | None:
        """PUT writes and GET reads a file on a network storage or the machine's own disk; None for other paths."""
        mounted = [(each[2], each[3].rstrip("/")) for each in instance.volumes if each[0] == "network"]
        for disk, mount_path in (*mounted, (f"{instance.id}/{instance.disk}", OWN_DISK)):
            name = path.removeprefix(f"{mount_path}/")
            if name != path:
                files = self._files.setdefault(disk, {})
                if method == b"PUT":
                    files[name] = body
                    return 201, "text/plain", b""
                content = files.get(name)
                return (404, "text/plain", b"no such file\n") if content is None else (200, "text/plain", content)
        return None

    def _open_own(self, instance: Instance, port: int, kind: str) -> int:
        """The loopback port; 0 if the limit is reached."""
        if self._count >= self._limit:
            return 0
        bound = self._bind(instance.loopback.get(str(port), 0))
        spread = 0.75 + fraction(self._world.seed, instance.seq, instance.starts, port) / 2
        opens_at = instance.running_since_sim + REFUSE_SECONDS * spread
        listener = Listener(instance, port, kind, bound, opens_at, opens_at + BAD_GATEWAY_SECONDS * spread)
        self._listeners.setdefault(instance.id, []).append(listener)
        self._count += 1
        self._pushed += 1
        heapq.heappush(self._due, (opens_at, self._pushed, listener))
        return int(bound.getsockname()[1])

    def _open_shared(self, instance: Instance, kind: str) -> int:
        """One listener for all endpoints above the limit. It names the first instance and returns 200 at once."""
        shared = self._shared.get(kind)
        if shared is None:
            shared = self._shared[kind] = Listener(instance, 0, kind, self._bind(0), 0, 0)
            self._listen(shared)
        return int(shared.socket.getsockname()[1])

    def _bind(self, preferred: int) -> socket.socket:
        """Bound but not listening: connections are refused, and the port stays reserved."""
        for number in (preferred, 0) if preferred else (0,):
            bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            if number:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                bound.bind((self._host, number))
            except OSError:
                bound.close()
                continue
            # After the bind: set before it, the system could assign a port that another socket is bound to. It is
            # inherited by connections, whose TIME_WAIT must not keep us from binding the port again.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setblocking(False)
            return bound
        raise OSError("no loopback port is free")

    def _listen(self, listener: Listener) -> None:
        if listener.closed:
            return
        listener.is_opening = True
        task = asyncio.get_running_loop().create_task(self._serve(listener))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, listener: Listener) -> None:
        protocol = HttpEndpoint if listener.kind == "http" else TcpEndpoint
        server = await asyncio.get_running_loop().create_server(lambda: protocol(self, listener), sock=listener.socket)
        listener.server = server
        if listener.closed:
            self._shut(listener)

    def _shut(self, listener: Listener) -> None:
        listener.closed = True
        if listener.server is not None:
            listener.server.close()
        elif not listener.is_opening:
            listener.socket.close()
        for transport in list(listener.live):
            transport.abort()


class TcpEndpoint(asyncio.Protocol):
    """Sends an SSH banner on port 22 and nothing on other ports."""

    def __init__(self, endpoints: EndpointListeners, listener: Listener) -> None:
        self._endpoints = endpoints
        self._listener = listener
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has a transport class of its own, so there is nothing to check here.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        self._listener.live.add(transport)
        if self._listener.kind == "tcp" and self._listener.port == 22:
            transport.write(b"SSH-2.0-OpenSSH_9.6\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._listener.live.discard(self._transport)


class HttpEndpoint(TcpEndpoint):
    """One response per connection."""

    def __init__(self, endpoints: EndpointListeners, listener: Listener) -> None:
        super().__init__(endpoints, listener)
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._transport is None or len(self._head) > REQUEST_HEAD_MAX:
            self.abort()
        elif self._is_complete():
            self._answer(self._transport)

    @property
    def _body(self) -> bytes:
        return self._head.partition(b"\r\n\r\n")[2]

    def _is_complete(self) -> bool:
        head, end, _ = self._head.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        return bool(end) and len(self._body) >= (int(length[1]) if length else 0)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, transport: asyncio.Transport) -> None:
        method, _, rest = self._head.partition(b" ")
        path = rest.partition(b" ")[0].decode("latin-1")
        match self._endpoints.mode(self._listener):
            case "ok" if (file := self._endpoints.file(self._listener.instance, method, path, self._body)) is not None:
                self._send(transport, method, *file)
            case "ok":
                shown = {"instance": self._listener.instance.name, "port": self._listener.port, "path": path}
                self._send(transport, method, 200, "application/json", orjson.dumps({"status": "ok", **shown}))
            case "badGateway":
                self._send(transport, method, 502, "text/html", BAD_GATEWAY_PAGE)
            case "errorPage":
                self._send(transport, method, 200, "text/html", BAD_GATEWAY_PAGE)
            case "hang":
                return
            case "reset":
                self.abort()
            case status:
                self._send(transport, method, int(status), "text/plain", b"configured status\n")

    def _send(self, transport: asyncio.Transport, method: bytes, status: int, kind: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status} -\r\nconnection: close\r\n"
        if status in WITHOUT_BODY:
            body = b""
        else:
            head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        transport.write(f"{head}\r\n".encode() + (b"" if method == b"HEAD" else body))
        transport.close()
