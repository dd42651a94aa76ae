"""Settles open questions about the provider's lists on a real account, by reading only."""

import secrets
from collections.abc import Awaitable, Callable

from sqlalchemy import func, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import ProviderIdentity
from server.errors import NovitaError
from server.novita.client import NovitaClient
from server.novita.endpoints.pages import PAGE_SIZE
from server.novita.models.base import ProviderPage
from server.novita.models.instance import RemoteInstance

# The largest that is accepted is looked for downwards.
PAGE_SIZES = (1000, 500, 200, 100, 50, 20)
TOO_FEW = "not known: it takes two instances to see"
NO_INSTANCE = "not known: it takes an instance to see"

Question = Callable[[NovitaClient], Awaitable[str]]


async def ask_all(novita: NovitaClient) -> dict[str, str]:
    """Every question with its answer; one that can't be answered says why."""
    answers: dict[str, str] = {}
    for name, question in QUESTIONS.items():
        try:
            answers[name] = await question(novita)
        except NovitaError as error:
            answers[name] = f"not known: {error.message}"
    return answers


async def store_answers(session: AsyncSession, answers: dict[str, str]) -> None:
    await session.execute(update(ProviderIdentity).values(answers=answers, answered_at=func.now()))


async def _first_page(novita: NovitaClient) -> str:
    first = await novita.instances(page=1, page_size=1)
    try:
        zeroth = await novita.instances(page=0, page_size=1)
    except NovitaError as error:
        if error.status is None or not 400 <= error.status < 500:
            raise
        return "1: page 0 is refused"
    if not zeroth.items:
        return NO_INSTANCE
    if not first.items or zeroth.items[0].id != first.items[0].id:
        return "0: page 1 is the second page"
    second = await novita.instances(page=2, page_size=1)
    return "both: pages 0 and 1 are the same" if second.items else TOO_FEW


async def _page_size(novita: NovitaClient) -> str:
    for size in PAGE_SIZES:
        try:
            page = await _read_first(novita, page_size=size)
        except NovitaError as error:
            if error.status != 400:
                raise
            continue
        if page.total is not None and len(page.items) < min(size, page.total):
            return f"{len(page.items)}: a page of {size} is shortened"
        return f"{size} is accepted" + ("" if len(page.items) == size else f", seen with {len(page.items)} instances")
    return f"less than {PAGE_SIZES[-1]}"


async def _name_filter(novita: NovitaClient) -> str:
    instances = (await _read_first(novita)).items
    target = next((each for each in instances if len(each.name) >= 6), None)
    if target is None:
        return "not known: it takes an instance with a name of six letters to see"
    if (await _read_first(novita, name=secrets.token_hex(12))).items:
        return "ignored: a name that nothing has selects instances"
    for kind, part in (("substring", target.name[1:-1]), ("prefix", target.name[:-1]), ("exact", target.name)):
        if any(each.id == target.id for each in (await _read_first(novita, name=part)).items):
            return kind
    return "none: even the whole name selects nothing"


async def _list_fields(novita: NovitaClient) -> str:
    page = await _read_first(novita)
    total = "with" if page.total is not None else "without"
    target = next((each for each in page.items if each.status == "running"), None)
    if target is None:
        return f"{total} total; ports not known: it takes a running instance to see"
    shown = await novita.instance(target.id)
    return f"{total} total; {_compare_ports(target, shown)}"


async def _read_first(
    novita: NovitaClient, *, name: str | None = None, page_size: int = PAGE_SIZE
) -> ProviderPage[RemoteInstance]:
    """The first page, whatever its number is."""
    try:
        return await novita.instances(page=0, page_size=page_size, name=name)
    except NovitaError as error:
        if error.status != 400:
            raise
        return await novita.instances(page=1, page_size=page_size, name=name)


def _compare_ports(listed: RemoteInstance, shown: RemoteInstance) -> str:
    if listed.endpoints == shown.endpoints:
        return "ports as in a get by id"
    return "ports without their addresses" if listed.endpoints else "no ports"


QUESTIONS: dict[str, Question] = {
    "first page": _first_page,
    "page size": _page_size,
    "name filter": _name_filter,
    "list": _list_fields,
}
