"""HTTP over uvicorn with bounds for everything that a client sends before its caller is known."""

from asyncio import TimerHandle, Transport
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.config import Settings
from server.graphql.transports.scope import CONNECTION, network_of
from server.http.connection_limits import ConnectionLimits, Visit
from server.http.framing import BodyFraming
from server.http.pipelined import HeldFlow, PipelinedStarts
from server.http.proxies import TrustedProxies
from server.http.refusals import refusal
from server.http.websocket import DirectWebSocketProtocol
from server.http.writes import JoinedWrites

HEAD_BYTES_MAX = 64 * 1024
# What the WebSocket library takes: it would not answer a handshake with more.
HEADERS_MAX = 100
HEADER_LINE_MAX = 8 * 1024
# The parser can't stop between two requests, so it is fed up to the end of a head, and in pieces where there is none.
PIECE = 1024
END_OF_HEAD = b"\r\n\r\n"
# A response is written until so many bytes are not read.
UNWRITTEN_MAX = 16 * 1024
CHECKS_PER_TIMEOUT = 4
CHECK_INTERVAL_MAX = 5.0  # seconds


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose client does not send a whole head or body in time, or stops reading a response.

    One timer per connection, not per request: a request only costs two readings of the clock. Pipelined requests are
    answered in order; while one waits, no more is read.
    """

    header_timeout = 10.0
    body_timeout = 30.0
    response_timeout = 60.0
    limits: ConnectionLimits
    proxies: TrustedProxies
    pipelined: PipelinedStarts

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading: str | None = "head"  # then "body", then None until the next request begins
        self._since = 0.0
        self._head_bytes = 0
        self._unwritten = 0
        self._body_left = 0
        self._framing = BodyFraming()
        self._unread = bytearray()
        self._running: RequestResponseCycle | None = None
        self._is_pipelined = False  # whether the next request came before the last response was complete
        self._refusal: tuple[int, str] | None = None  # sent after the responses to earlier requests
        self._is_refused = False
        self._is_upgraded = False
        self._paused_since: float | None = None
        self._timer: TimerHandle | None = None
        self._is_proxy = False
        self.visit: Visit | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = HeldFlow(transport)
        peer = self.client[0] if self.client else ""
        self._is_proxy = self.proxies.trusts(peer)
        address = None if self._is_proxy else network_of(peer)
        if not self.limits.enter(address):
            self._is_refused = True
            self._write_refusal(503, "TOO_MANY_CONNECTIONS")
            return
        self.visit = Visit(self.limits, address)
        transport.set_write_buffer_limits(high=UNWRITTEN_MAX)
        self._since = self.loop.time()
        shortest = min(self.header_timeout, self.body_timeout, self.response_timeout)
        self._step = min(CHECK_INTERVAL_MAX, shortest / CHECKS_PER_TIMEOUT)
        self._timer = self.loop.call_later(self._step, self._check_timeouts)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.visit is not None:
            self.visit.end()
        # uvicorn notifies only the request that was parsed last.
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self._refusal is not None:
            return
        self._unread += data
        self._parse()

    def _parse(self) -> None:
        """Parse what has arrived until a request has to wait for an earlier one."""
        while self._unread and not self.pipeline and not self._is_refused:
            if self._reading is None:
                self._begin_head()
            size = self._size_of_piece()
            piece = bytes(self._unread[:size])
            del self._unread[:size]
            if self._reading == "head":
                self._head_bytes += len(piece)
            else:
                self._framing.add_piece(len(piece))
            self._feed(piece)
            if self._is_upgraded or self.transport.is_closing():
                self._unread.clear()
                return
            if self._reading == "head" and self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(414 if len(getattr(self, "url", b"")) > HEAD_BYTES_MAX // 2 else 431, "HEAD_TOO_LARGE")
            elif self._reading == "body" and (refusal := self._framing.refusal()) is not None:
                self._refuse_body(*refusal)
        if self._refusal is None and not self._has_room():
            self._refuse(503, "TOO_MANY_CONNECTIONS")
        self._hold_reading()

    def _size_of_piece(self) -> int:
        if self._reading == "body":
            return self._body_left if self._body_left > 0 else PIECE  # of a body in chunks the length is not known
        end = self._unread.find(END_OF_HEAD, 0, PIECE)
        return PIECE if end < 0 else end + len(END_OF_HEAD)

    def _has_room(self) -> bool:
        """Whether what waits here may wait beside what waits elsewhere. A caller's response may be of any size."""
        if self.visit is None:
            return True
        unwritten = 0 if self.visit.is_admitted else self._unwritten
        return self.visit.hold(len(self._unread) + self._head_bytes + unwritten)

    def _feed(self, piece: bytes) -> None:
        """As uvicorn's `data_received`, which would log every refused request: half of what a flood of them costs."""
        self._unset_keepalive_if_required()
        try:
            cast("Any", self.parser).feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()  # any other upgrade is answered as if it were none
        except httptools.HttpParserError:
            self.send_400_response("")

    def _hold_reading(self) -> None:
        flow = cast("HeldFlow", self.flow)
        # Also while something is unread: each batch of requests would otherwise let 256 KB more in.
        is_held = bool(self.pipeline or self._unread) or self._refusal is not None
        was_held, flow.is_held = flow.is_held, is_held
        if flow.is_held:
            flow.pause_reading()
        elif was_held:
            flow.resume_reading()

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)["extensions"] = {CONNECTION: self.visit}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading == "body":
            return  # a field behind the body is no header: those have been checked, and the request has begun
        super().on_header(name, value)
        if len(self.headers) > HEADERS_MAX:  # an unfinished head of many short lines takes 25 times its bytes
            self._refusal = (431, "HEAD_TOO_LARGE")
            raise ValueError("the head has too many headers")  # ends the parser, which calls send_400_response

    def on_headers_complete(self) -> None:
        longest = max((len(name) + len(value) for name, value in self.headers), default=0)
        if longest > HEADER_LINE_MAX - 4 or len(self.url) > HEAD_BYTES_MAX // 2:
            self._refusal = (431, "HEAD_TOO_LARGE")
            raise ValueError("the head is too large")
        if self._should_upgrade() and len(self.url) > HEADER_LINE_MAX - 32:
            self._refusal = (414, "HEAD_TOO_LARGE")
            raise ValueError("the address is too long")
        if self._is_proxy:
            self._set_client()
        super().on_headers_complete()
        self._reading, self._since, self._head_bytes = "body", self.loop.time(), 0
        self._framing.begin()
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        self._body_left = int(length) if length.isdigit() and len(length) < 16 else 0

    def _set_client(self) -> None:
        """The request came from a trusted proxy: its client is counted instead."""
        peer = self.client or ("", 0)
        address = self.proxies.client_of(peer[0], self.headers)
        self.scope["client"] = (address, 0 if address != peer[0] else peer[1])
        is_named = not self.proxies.trusts(address)
        if self.visit is not None and not self.visit.pass_to(network_of(address) if is_named else None):
            self._refusal = (503, "TOO_MANY_CONNECTIONS")
            raise ValueError("the client has too many connections")

    def on_body(self, body: bytes) -> None:
        self._body_left -= len(body)
        self._framing.add_content(len(body))
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._framing.add_chunk()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._reading, self._head_bytes, self._body_left = None, 0, 0

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if cycle.scope["method"] == "POST":  # a HEAD has no body that would follow
            cycle.transport = cast("Any", JoinedWrites(self.transport, self.loop))
        if self._is_pipelined:
            self.pipelined.add(lambda: self._start_pipelined(cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def _start_pipelined(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not cycle.disconnected and not self.transport.is_closing():
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._is_pipelined = bool(self.pipeline or self._unread)
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._is_proxy and self.visit is not None and not self.pipeline:
            self.visit.pass_to(None)  # kept open for whichever client is next
        self._since = self.loop.time()  # what is parsed only now did not come late
        self._hold_reading()
        if self._unread and not self.pipeline:
            self.loop.call_soon(self._parse)
        if self._refusal is not None and not self.pipeline and not self._is_busy():
            self._write_refusal(*self._refusal)

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def handle_websocket_upgrade(self) -> None:
        if self._is_busy() or self.visit is None:
            self._refuse(400, "BAD_REQUEST")  # an earlier request has not been answered
            return
        self._stop_timer()
        self._is_upgraded = True
        visit, self.visit = self.visit, None
        self.transport.set_write_buffer_limits()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        assert isinstance(protocol, DirectWebSocketProtocol)
        protocol.take_over(visit, self.scope["client"])

    def pause_writing(self) -> None:
        self._paused_since = self.loop.time()
        self._unwritten = self.transport.get_write_buffer_size()
        if not self._has_room():
            self.transport.abort()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._paused_since = None
        self._unwritten = 0
        self._has_room()
        super().resume_writing()

    def _begin_head(self) -> None:
        if self._reading != "head":
            self._reading, self._since = "head", self.loop.time()

    def _check_timeouts(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        moment = self.loop.time()
        if self._paused_since is not None and moment - self._paused_since > self.response_timeout:
            self.transport.abort()
            return
        if self._reading is not None and not self._is_answering() and not self.pipeline:
            timeout = self.header_timeout if self._reading == "head" else self.body_timeout
            if moment - self._since > timeout:
                self._time_out()
                return
        self._timer = self.loop.call_later(self._step, self._check_timeouts)

    def _is_answering(self) -> bool:
        """While a response is being written, the next request may wait and an unread body may be slow."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first head
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def _time_out(self) -> None:
        if self._reading == "head":
            self._refuse(408, "REQUEST_TIMEOUT")
        else:
            self._refuse_body(408, "REQUEST_TIMEOUT")

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None and self._reading == "body":
            self._refuse_body(400, "BAD_REQUEST")
        else:
            self._refuse(*(self._refusal or (400, "BAD_REQUEST")))

    def _refuse(self, status: int, code: str) -> None:
        """Answer and close, after the responses to earlier requests."""
        self._refusal = (status, code)
        self._unread.clear()
        if self._is_busy() or self.pipeline:
            self._hold_reading()
        else:
            self._write_refusal(status, code)

    def _refuse_body(self, status: int, code: str) -> None:
        """The body of a request that was begun is late or broken."""
        if self.pipeline:
            self.pipeline.popleft()  # the newest
            self._refuse(status, code)
        elif self.cycle.response_started:
            self.transport.abort()  # it was answered without its body, and the client still sends
        else:
            self._write_refusal(status, code)
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _write_refusal(self, status: int, code: str) -> None:
        """Answer in the form of every other error, although the application was not reached."""
        if code != "TOO_MANY_CONNECTIONS":  # those are counted where they are refused
            self.limits.note_bad_request(code, self.client[0] if self.client else "")
        self._is_refused = True
        self.transport.write(refusal(status, code))
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol_for(settings: Settings) -> type[BoundedHttpProtocol]:
    """The protocol with the timeouts of the settings and counts of its own: one per listening socket."""
    counts = ConnectionLimits(strangers_per_address=settings.strangers_per_address)

    class Configured(BoundedHttpProtocol):
        limits = counts
        pipelined = PipelinedStarts()
        proxies = TrustedProxies(settings.trusted_proxies)
        header_timeout = settings.request_header_timeout.total_seconds()
        body_timeout = settings.request_body_timeout.total_seconds()
        response_timeout = settings.response_timeout.total_seconds()

    return Configured
