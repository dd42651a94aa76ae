"""uvicorn's HTTP with an end to its patience: it waits for ever for a head, a body, or a reader."""

from asyncio import TimerHandle, Transport
from typing import Any, cast
from uuid import uuid4

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from server.config import Settings

MOST_HEAD_BYTES = 64 * 1024
REASONS = {
    400: "This is not HTTP.",
    408: "The request was not sent in time.",
    414: "The address is too long.",
    431: "The head of the request is too long.",
}
HEADERS = (
    "content-type: application/json; charset=utf-8",
    "x-content-type-options: nosniff",
    "cache-control: no-store",
    "connection: close",
)
LOOKS = 4  # times within the shortest patience
SLOWEST_LOOK = 5.0  # seconds


class Patient(HttpToolsProtocol):
    """One timer for a connection, not for each request: what a request costs is looking at the clock twice.

    A client is cut off that has not sent a whole head, or a whole body, in time, or has stopped to read an answer.
    """

    header_timeout = 10.0
    body_timeout = 30.0
    response_timeout = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading: str | None = "head"  # then "body", then None until the next request begins
        self._since = 0.0
        self._head_bytes = 0
        self._stalled: float | None = None
        self._look: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        shortest = min(self.header_timeout, self.body_timeout, self.response_timeout)
        self._step = min(SLOWEST_LOOK, shortest / LOOKS)
        self._look = self.loop.call_later(self._step, self._look_after)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_looking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._reading is None:
            self._begin_head()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._reading == "head" and self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(414 if len(getattr(self, "url", b"")) > MOST_HEAD_BYTES // 2 else 431, "HEAD_TOO_LARGE")

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._reading, self._since, self._head_bytes = "body", self.loop.time(), 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._reading, self._head_bytes = None, 0

    def handle_websocket_upgrade(self) -> None:
        self._stop_looking()
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        self._stalled = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        super().resume_writing()

    def _begin_head(self) -> None:
        if self._reading != "head":
            self._reading, self._since = "head", self.loop.time()

    def _look_after(self) -> None:
        self._look = None
        if self.transport.is_closing():
            return
        moment = self.loop.time()
        if self._stalled is not None and moment - self._stalled > self.response_timeout:
            self.transport.abort()
            return
        if self._reading is not None and not self._is_answering():
            patience = self.header_timeout if self._reading == "head" else self.body_timeout
            if moment - self._since > patience:
                self._give_up()
                return
        self._look = self.loop.call_later(self._step, self._look_after)

    def _is_answering(self) -> bool:
        """The next request may wait, and a body that nobody wants may be slow, while an answer is being written."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first head
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def _give_up(self) -> None:
        is_body = self._reading == "body"
        if is_body and self.cycle.response_complete:
            self.transport.abort()  # it was answered without waiting for the rest, and still goes on
            return
        self._refuse(408, "REQUEST_TIMEOUT")
        if is_body:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "BAD_REQUEST")

    def _refuse(self, status: int, code: str) -> None:
        """In the form of every other error, though nothing that answers requests has been reached."""
        request_id = f"req_{uuid4().hex[:20]}"
        extensions = {"code": code, "retryable": status == 408, "requestId": request_id}
        body = orjson.dumps({"errors": [{"message": REASONS[status], "extensions": extensions}]})
        lines = [f"x-request-id: {request_id}", f"content-length: {len(body)}", *HEADERS, "", ""]
        self.transport.write(STATUS_LINE[status] + "\r\n".join(lines).encode() + body)
        self.transport.close()

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None


def patient(settings: Settings) -> type[Patient]:
    """With the patience that the settings give it."""

    class Configured(Patient):
        header_timeout = settings.request_header_timeout.total_seconds()
        body_timeout = settings.request_body_timeout.total_seconds()
        response_timeout = settings.response_timeout.total_seconds()

    return Configured
