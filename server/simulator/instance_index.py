"""Index of instances by page, status and part of the name."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence

from server.simulator.models import Instance

PIECE_LENGTH = 4


class NameIndex:
    """Substring search by aligned n-grams.

    A name is cut into pieces of four characters at positions 0, 4, 8...; any needle of seven or more characters
    contains at least one whole piece, in one of four alignments. For each alignment the rarest piece gives the
    candidates. That is ten entries per name instead of forty for an index of all positions. Candidates may be stale or
    wrong, so the caller checks each.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[int]] = {}

    def add(self, name: str, seq: int) -> None:
        for at in range(0, len(name) - PIECE_LENGTH + 1, PIECE_LENGTH):
            self._pieces.setdefault(name[at : at + PIECE_LENGTH], []).append(seq)

    def remove(self, name: str, seq: int) -> None:
        for at in range(0, len(name) - PIECE_LENGTH + 1, PIECE_LENGTH):
            piece = name[at : at + PIECE_LENGTH]
            rows = self._pieces.get(piece, [])
            place = bisect_left(rows, seq)
            if place < len(rows) and rows[place] == seq:
                del rows[place]
            elif seq in rows:
                rows.remove(seq)
            if not rows:
                self._pieces.pop(piece, None)

    def candidates(self, needle: str) -> set[int] | None:
        """Rows that may contain the needle; None if it is too short for the index."""
        if len(needle) < 2 * PIECE_LENGTH - 1:
            return None
        found: set[int] = set()
        for offset in range(PIECE_LENGTH):
            pieces = (
                needle[at : at + PIECE_LENGTH] for at in range(offset, len(needle) - PIECE_LENGTH + 1, PIECE_LENGTH)
            )
            found.update(min((self._pieces.get(piece, []) for piece in pieces), key=len))
        return found


def contains(name: str, wanted: str) -> bool:
    return wanted in name


class InstanceIndex:
    """Listed instances, newest first."""

    def __init__(self) -> None:
        self._rows: dict[int, Instance] = {}
        self._order: list[int] = []
        self._names = NameIndex()
        self._by_status: dict[str, dict[int, None]] = {}
        # Sorted copies of the above, created on use and dropped at the next change.
        self._sorted: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, instance: Instance) -> None:
        seq = instance.seq
        if seq in self._rows:
            return
        self._rows[seq] = instance
        if not self._order or seq > self._order[-1]:
            self._order.append(seq)
        else:
            insort(self._order, seq)
        self._names.add(instance.name.lower(), seq)
        self._enter(instance.status, seq)

    def remove(self, instance: Instance) -> None:
        seq = instance.seq
        if self._rows.pop(seq, None) is None:
            return
        del self._order[bisect_left(self._order, seq)]
        self._names.remove(instance.name.lower(), seq)
        self._leave(instance.status, seq)

    def move(self, instance: Instance, before: str) -> None:
        """The instance's status changed from `before`."""
        if instance.seq in self._rows:
            self._leave(before, instance.seq)
            self._enter(instance.status, instance.seq)

    def counts(self) -> dict[str, int]:
        return {status: len(rows) for status, rows in self._by_status.items() if rows}

    def page(
        self,
        start: int,
        size: int,
        *,
        name: str = "",
        matches: Callable[[str, str], bool] = contains,
        products: Collection[str] | None = None,
        status: str = "",
    ) -> tuple[list[Instance], int]:
        """(the page, the number of all selected rows); `matches` may select less than the names with `name` in them."""
        rows: Sequence[int] = self._with_status(status) if status else self._order
        if name:
            wanted = name.lower()
            rows = [seq for seq in self._named(rows, wanted, status) if matches(self._rows[seq].name.lower(), wanted)]
        if products is not None:
            rows = [seq for seq in rows if self._rows[seq].product_id in products]
        stop = len(rows) - start
        page = rows[max(0, stop - size) : max(0, stop)]
        return [self._rows[seq] for seq in reversed(page)], len(rows)

    def _named(self, rows: Iterable[int], needle: str, status: str) -> list[int]:
        candidates = self._names.candidates(needle)
        if candidates is None:
            return [seq for seq in rows if needle in self._rows[seq].name.lower()]
        found = [seq for seq in candidates if seq in self._rows and needle in self._rows[seq].name.lower()]
        return sorted(seq for seq in found if not status or self._rows[seq].status == status)

    def _with_status(self, status: str) -> list[int]:
        rows = self._sorted.get(status)
        if rows is None:
            rows = self._sorted[status] = sorted(self._by_status.get(status, ()))
        return rows

    def _enter(self, status: str, seq: int) -> None:
        self._by_status.setdefault(status, {})[seq] = None
        self._sorted.pop(status, None)

    def _leave(self, status: str, seq: int) -> None:
        self._by_status.get(status, {}).pop(seq, None)
        self._sorted.pop(status, None)
