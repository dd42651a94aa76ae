"""One page of a list."""

from typing import Generic, TypeVar

from server.novita.wire.value import value

T = TypeVar("T")


@value
class Page(Generic[T]):
    """`total` is what the provider says there are in all, None where it does not say."""

    items: tuple[T, ...]
    total: int | None
