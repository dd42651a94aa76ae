"""One page of a list."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`total` is what the provider says there are in all, None where it does not say."""

    items: tuple[T, ...]
    total: int | None
