"""Cursors, edges and connections of pages."""

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

import orjson
import strawberry
from graphql import GraphQLError

from schema.context import Info
from server.db import pages
from server.db.tables.rows import Model

MAX_PAGE = 100
MAX_NUMBER = 2**53  # in a cursor
_LAYOUT = struct.Struct(">q16s")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def cursor_of(created_at: datetime, id: UUID) -> str:
    """The sort key of one row, exact to the microsecond."""
    return urlsafe_b64encode(_LAYOUT.pack((created_at - _EPOCH) // _MICROSECOND, id.bytes)).decode()


def parse_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        micros, raw = _LAYOUT.unpack(urlsafe_b64decode(cursor.encode("ascii")))
        return _EPOCH + timedelta(microseconds=micros), UUID(bytes=raw)
    except (binascii.Error, struct.error, ValueError, OverflowError):
        raise invalid_cursor() from None


def invalid_cursor() -> GraphQLError:
    return GraphQLError("The cursor is invalid.", extensions={"code": "INVALID_CURSOR"})


def order_cursor(order: str, value: str | int | datetime, id: UUID) -> str:
    """A cursor of rows in a chosen order. It names the order, because it means nothing in another one."""
    key = value.isoformat() if isinstance(value, datetime) else value
    return urlsafe_b64encode(orjson.dumps([order, key, id.hex])).decode()


def parse_order_cursor(cursor: str, order: str, kind: type[str | int | datetime]) -> tuple[str | int | datetime, UUID]:
    try:
        cursor_order, key, raw = orjson.loads(urlsafe_b64decode(cursor.encode("ascii")))
        if cursor_order != order:
            raise ValueError
        return _parse_key(key, kind), UUID(raw)
    except (binascii.Error, ValueError, TypeError, AttributeError):
        message = "The cursor is invalid, or belongs to another sort order."
        raise GraphQLError(message, extensions={"code": "INVALID_CURSOR"}) from None


def _parse_key(key: object, kind: type[str | int | datetime]) -> str | int | datetime:
    if kind is int:
        if type(key) is not int or abs(key) > MAX_NUMBER:
            raise ValueError
        return key
    if not isinstance(key, str) or "\x00" in key:
        raise ValueError
    if kind is str:
        return key
    moment = datetime.fromisoformat(key)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def check_first(first: int) -> int:
    if not 1 <= first <= MAX_PAGE:
        raise GraphQLError(f"`first` must be 1 to {MAX_PAGE}.", extensions={"code": "INVALID_PAGE_SIZE"})
    return first


T = TypeVar("T")
E = TypeVar("E", bound="Edge[Any]")
Row = TypeVar("Row")


@strawberry.type
class Edge(Generic[T]):
    cursor: str = strawberry.field(description="Cursor: pass it as `after` to continue behind this item.")
    node: T = strawberry.field(description="The item.")


@strawberry.type(description="Position of a page. Pages are read forward, with `first` and `after`.")
class PageInfo:
    has_next_page: bool = strawberry.field(description="Whether there are more items after this page.")
    end_cursor: str | None = strawberry.field(
        description="Cursor of the last item: pass it as `after` to get the next page. Null if the page is empty."
    )
    start_cursor: str | None = strawberry.field(
        default=None, description="Cursor of the first item. Null if the page is empty."
    )
    has_previous_page: bool = strawberry.field(
        default=False, description="Whether there are items before this page: true if `after` was given."
    )

    @classmethod
    def of(cls, edges: Sequence[Edge[Any]], *, has_more: bool, after: str | None) -> "PageInfo":
        return cls(
            has_next_page=has_more,
            end_cursor=edges[-1].cursor if edges else None,
            start_cursor=edges[0].cursor if edges else None,
            has_previous_page=after is not None,
        )


@strawberry.type
class Connection(Generic[E, T]):
    edges: list[E] = strawberry.field(description="The items with their cursors.")
    nodes: list[T] = strawberry.field(description="The items without cursors.")
    page_info: PageInfo = strawberry.field(description="Position of this page.")

    @classmethod
    def of(
        cls, rows: Sequence[Row], to_edge: Callable[[Row], E], *, first: int, after: str | None, **private: Any
    ) -> Self:
        """The first rows as a page; `rows` has one more if there is a next page."""
        edges = [to_edge(row) for row in rows[:first]]
        page_info = PageInfo.of(edges, has_more=len(rows) > first, after=after)
        return cls(edges=edges, nodes=[edge.node for edge in edges], page_info=page_info, **private)


@strawberry.type
class ListConnection(Connection[E, T]):
    """A page of a list that is read from the provider as a whole."""

    total_count: int = strawberry.field(description="Number of items on all pages.")

    @classmethod
    def page_of(
        cls,
        items: Sequence[Row],
        edge: Callable[..., E],
        to_node: Callable[[Row], T],
        *,
        key: Callable[[Row], str],
        first: int,
        after: str | None,
    ) -> Self:
        """The page after a cursor, which names the item with that `key`: the list's order may differ next time."""
        size = check_first(first)
        start = 0 if after is None else _place_behind([_key_cursor(key(item)) for item in items], after)
        return cls.of(
            items[start : start + size + 1],
            lambda item: edge(cursor=_key_cursor(key(item)), node=to_node(item)),
            first=size,
            after=after,
            total_count=len(items),
        )


def _key_cursor(key: str) -> str:
    return urlsafe_b64encode(key.encode()).decode()


def _place_behind(cursors: list[str], after: str) -> int:
    if after not in cursors:
        message = "The cursor's item is no longer in the list; start again without a cursor."
        raise GraphQLError(message, extensions={"code": "INVALID_CURSOR"})
    return cursors.index(after) + 1


@strawberry.type
class CountedConnection(Connection[E, T]):
    count: strawberry.Private[Callable[[], Awaitable[int]]]

    @classmethod
    async def newest_first(
        cls,
        info: Info,
        model: type[Model],
        where: pages.Where,
        edge: Callable[..., E],
        to_node: Callable[[Any], T],
        *,
        first: int,
        after: str | None,
    ) -> Self:
        """The page of a table's rows after a cursor."""
        size = check_first(first)
        place = None if after is None else parse_cursor(after)
        database = info.context.services.database
        rows: Sequence[Any] = await pages.newest_first(database, model, where, first=size + 1, after=place)
        return cls.of(
            rows,
            lambda row: edge(cursor=cursor_of(row.created_at, row.id), node=to_node(row)),
            first=size,
            after=after,
            count=partial(pages.count_rows, database, model, where),
        )

    @strawberry.field(description="Number of items on all pages; counted only if selected.")
    async def total_count(self) -> int:
        return await self.count()
