"""Where a page stands, the same for all lists."""

from collections.abc import Sequence
from typing import Protocol

import strawberry


class Edge(Protocol):
    cursor: str


@strawberry.type(description="Where a page stands. Pages are read forwards: with `first` and `after`.")
class PageInfo:
    has_next_page: bool = strawberry.field(description="Whether there is more behind this page.")
    end_cursor: str | None = strawberry.field(
        description="The cursor of its last item: give it as `after` to get the next page; null when it is empty."
    )
    start_cursor: str | None = strawberry.field(
        default=None, description="The cursor of its first item; null when it is empty."
    )
    has_previous_page: bool = strawberry.field(
        default=False, description="Whether something comes before it: so it is when `after` was given."
    )

    @classmethod
    def of(cls, edges: Sequence[Edge], *, has_more: bool, after: str | None) -> "PageInfo":
        return cls(
            has_next_page=has_more,
            end_cursor=edges[-1].cursor if edges else None,
            start_cursor=edges[0].cursor if edges else None,
            has_previous_page=after is not None,
        )
