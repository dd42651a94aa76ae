"""Reads all pages of a list whose first page and total are undocumented."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from server.errors import ProviderError, ValidationFailed
from server.novita.models.base import ProviderPage
from server.novita.models.instance import RemoteInstance
from server.novita.models.storage import NetworkStorage

log = structlog.get_logger()

T = TypeVar("T", RemoteInstance, NetworkStorage)

PAGE_SIZE = 100
PAGES_MAX = 1_000  # 100,000 instances; more would be an endless list


async def read_all_pages(
    read: Callable[[int], Awaitable[ProviderPage[T]]], *, of: str, must_be_complete: bool
) -> list[T]:
    """Each item once. `must_be_complete`: ProviderError if fewer are found than the list says it has.

    Whether pages begin at 0 or 1 and what a total counts is undocumented. So a total is believed only if it is larger
    than its own page; without one, pages are read from 1 until one brings nothing new, and then page 0.
    """
    found: dict[str, T] = {}
    for number in range(1, PAGES_MAX + 1):
        count = len(found)
        page = await read(number)
        found.update((each.id, each) for each in page.items)
        if page.total is not None and len(page.items) < page.total <= len(found):
            return list(found.values())
        if len(found) == count:
            break
    else:
        raise ProviderError(f"the list of {of} does not end after {PAGES_MAX} pages")
    with suppress(ValidationFailed):  # it has no page 0
        page = await read(0)
        found.update((each.id, each) for each in page.items)
    if page.total is not None and len(found) < page.total:
        log.warning("novita list is shorter than it says", found=len(found), total=page.total)
        if must_be_complete:
            raise ProviderError(f"the list has {len(found)} of the {page.total} {of} that it says")
    return list(found.values())
