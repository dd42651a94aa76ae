"""Bounds what a body in chunks has beside its content: the sizes of its chunks, and the fields behind the last one."""

# The parser keeps an unfinished field, and copies it at each piece that is added.
WITHOUT_CONTENT_MAX = 8 * 1024
# A client sends few chunks, or large ones. One costs three microseconds, so those of one byte held the loop for half a
# second per megabyte.
CHUNKS_MAX = 200
CONTENT_PER_CHUNK = 256


class BodyFraming:
    """Of the request that is being read."""

    __slots__ = ("_chunks", "_content", "_without_content")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._chunks = self._content = 0
        self._without_content = 0  # bytes since the last content

    def add_piece(self, size: int) -> None:
        """So many bytes are parsed now."""
        self._without_content += size

    def add_content(self, size: int) -> None:
        self._without_content = 0
        self._content += size

    def add_chunk(self) -> None:
        self._chunks += 1

    def refusal(self) -> tuple[int, str] | None:
        """Status and code, if it is too much."""
        if self._without_content > WITHOUT_CONTENT_MAX:
            return 431, "HEAD_TOO_LARGE"
        if self._chunks > CHUNKS_MAX + self._content // CONTENT_PER_CHUNK:
            return 413, "BODY_TOO_LARGE"
        return None
