"""A request that is not even looked at as GraphQL: a status and a sentence."""

from typing import Any


class Refusal(Exception):
    """Told in the form of GraphQL's errors all the same, so that clients need only one way to read them."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "BAD_REQUEST",
        *,
        retry_after_ms: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after_ms = retry_after_ms
        self.headers = headers
        if retry_after_ms is not None:
            self.headers = (*headers, (b"retry-after", b"%d" % -(-retry_after_ms // 1000)))

    def shown(self, request_id: str) -> dict[str, Any]:
        is_retryable = self.retry_after_ms is not None
        extensions: dict[str, Any] = {"code": self.code, "retryable": is_retryable, "requestId": request_id}
        if is_retryable:
            extensions["retryAfterMs"] = self.retry_after_ms
        return {"message": self.message, "extensions": extensions}
